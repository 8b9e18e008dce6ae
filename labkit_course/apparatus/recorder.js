// Records from the microphone, shows how loud it is, sends samples or a chosen file to Python, plays what Python took.

// Runs in the audio thread, which a busy page does not hold up: hands each block of samples on.
const TAP = `registerProcessor("tap", class extends AudioWorkletProcessor {
  process([[samples]]) { if (samples) this.port.postMessage(samples.slice()); return true; }
});`;
const MOST_BYTES = 8e6; // a Jupyter server takes messages of 10 MB
const OR_FILE = "Or choose an audio file.";
const REFUSALS = {
  NotAllowedError: "The microphone was refused. Allow it: press the icon left of the page's address, then Record again.",
  NotFoundError: "There is no microphone. Connect one, and press Record again.",
  NotReadableError: "The microphone cannot be read; perhaps another program has it. Close that, and press Record again.",
  insecure: "Browsers give a microphone only to pages of https or localhost. Open this notebook at such an address.",
};

function element(around, tag, properties) {
  return around.appendChild(Object.assign(document.createElement(tag), properties));
}

function render({ model, el }) {
  el.classList.add("labkit-recorder");
  el.setAttribute("role", "group");
  el.setAttribute("aria-label", "Voice recorder");
  const look = { type: "button", className: "jupyter-button widget-button" };
  const button = element(el, "button", { ...look, textContent: "Record" });
  const play = element(el, "button", { ...look, textContent: "Play", disabled: true });
  const level = element(el, "meter", { min: 0, max: 1, title: "Level of the microphone" });
  level.setAttribute("aria-label", "Level of the microphone");
  const label = element(el, "label", { textContent: "Audio file: " });
  const chosen = element(label, "input", { type: "file", accept: "audio/*,.wav,.flac,.ogg,.opus,.mp3" });
  const status = element(el, "p", {});
  status.setAttribute("role", "status"); // read out at each change

  const show = () => { status.textContent = model.get("status"); };
  const tell = (words) => { model.set("status", words); model.save_changes(); };
  let recording = null; // context, stream and blocks of the one under way
  let heard = null; // what Python took

  function release() {
    recording?.stream?.getTracks().forEach((track) => track.stop()); // or the browser goes on listening
    recording?.context.close();
    recording = null;
    button.textContent = "Record";
    level.value = 0;
  }

  async function start() {
    if (!navigator.mediaDevices?.getUserMedia || !window.AudioWorkletNode) throw { name: "insecure" };
    const own = recording = { context: new AudioContext(), blocks: [], count: 0 };
    tell("Allow the microphone, where the browser asks.");
    const asItIs = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    own.stream = await navigator.mediaDevices.getUserMedia({ audio: asItIs });
    const longest_s = Math.min(model.get("longest_s"), Math.floor(MOST_BYTES / 4 / own.context.sampleRate)); // float32
    const [track] = own.stream.getTracks();
    if (recording !== own) return track.stop(); // the view was closed meanwhile
    track.onended = stop; // it was unplugged
    const address = URL.createObjectURL(new Blob([TAP], { type: "text/javascript" }));
    await own.context.audioWorklet.addModule(address);
    const mono = { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" };
    const tap = new AudioWorkletNode(own.context, "tap", mono);
    tap.port.onmessage = ({ data }) => {
      if (recording !== own) return;
      own.blocks.push(data);
      own.count += data.length;
      level.value = Math.max(Math.sqrt(Math.max(...data.map(Math.abs))), 0.97 * level.value);
      if (own.count >= longest_s * own.context.sampleRate) stop();
    };
    own.context.createMediaStreamSource(own.stream).connect(tap);
    await own.context.resume();
    button.textContent = "Stop";
    tell(`Recording, for ${longest_s} s at most. Press Stop when you have spoken.`);
  }

  function stop() {
    const { blocks, count, context } = recording;
    const samples = new Float32Array(count);
    let at = 0;
    for (const block of blocks) { samples.set(block, at); at += block.length; }
    tell("Sent to Python, which takes it when no cell is running.");
    model.send({ rate_hz: context.sampleRate }, undefined, [samples.buffer]);
    release();
  }

  button.onclick = () => {
    if (button.textContent === "Stop") stop();
    else if (!recording) start().catch(({ name, message }) => {
      tell(`${REFUSALS[name] ?? `The microphone cannot be used: ${name}, ${message}.`} ${OR_FILE}`);
      release();
    });
  };
  chosen.onclick = () => { chosen.value = ""; }; // else the same file could not be chosen again
  chosen.onchange = async () => {
    const [file] = chosen.files;
    if (!file) return;
    if (file.size > MOST_BYTES) return tell(`${file.name} has more than 8 MB: cut it, or choose a shorter one.`);
    tell("Sent to Python, which takes it when no cell is running.");
    model.send({ file: file.name }, undefined, [await file.arrayBuffer()]);
  };
  play.onclick = () => {
    const context = new AudioContext();
    const source = context.createBufferSource();
    source.buffer = context.createBuffer(1, heard.samples.length, heard.rate_hz);
    source.buffer.copyToChannel(heard.samples, 0);
    source.connect(context.destination);
    source.onended = () => context.close();
    source.start();
  };
  const take = ({ rate_hz }, [bytes]) => {
    const { buffer, byteOffset, byteLength } = bytes;
    heard = { rate_hz, samples: new Float32Array(buffer.slice(byteOffset, byteOffset + byteLength)) };
    play.disabled = false;
  };
  model.on("msg:custom", take);
  model.on("change:status", show);
  show();
  return () => { release(); model.off("msg:custom", take); model.off("change:status", show); };
}

export default { render };
