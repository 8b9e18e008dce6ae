/* The live page: asks labkit.live.server for what is visible, and draws it again when runs have grown. */
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const { token, palettes, looks } = JSON.parse(byId("live-data").textContent);
  const { config } = JSON.parse(byId("report-data").textContent);
  const SHOWN = 60, MOST_GROUPS = 300, MOST_FACETS = 9, MANY = 40; // more groups have no bands and no legend
  const AXES = { wall_s: "Wall time since training began (s)", train_s: "Training time (s)", step: "Step", samples: "Samples",
    energy_j: "Energy since the first sample (J)", cost_usd: "Cost at the price of the tier ($)" };
  const STARTS = { filter: "", running: "", metric: "", x: "wall_s", by: "", facet: "", smooth: "0", singles: "", log: "", from: "",
    to: "", machine: "", counter: "", a: "", b: "", target: "", sort: "started", up: "" };
  const view = { ...STARTS, ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))) };
  const rows = new Map(); // by run
  let news = { varying: {}, same: {}, metrics: [], notes: [], unread: 0 };
  let fresh = true; // whether the next message has all runs
  let all = false;

  // text and numbers
  const plain = (text) => String(text).replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);
  const cut = (text, most = 60) => { text = String(text); return text.length > most ? `${text.slice(0, most - 1)}…` : text; };
  const number = (value) => value == null || !isFinite(value) ? "–"
    : Math.abs(value) >= 1e4 && Math.abs(value) < 1e9 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
  const seconds = (value) => value == null ? "–" : value < 300 ? `${value.toFixed(value < 1 ? 2 : 1)} s`
    : value < 7200 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(2)} h`;
  const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  const say = (text) => { byId("status").textContent = text; };
  function element(tag, text, attributes = {}) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  async function ask(path, body) {
    const reply = await fetch(`${path}?token=${encodeURIComponent(token)}`, { method: "POST", body: JSON.stringify(body) });
    if (!reply.ok) throw new Error(`The server refused (${reply.status}).`);
    const answer = await reply.json();
    if (answer.error) throw new Error(answer.error);
    return answer;
  }
  // Runs `how` again after `least` ms at the earliest, never twice at once, and once more if it was asked for meanwhile.
  function oneAtATime(how, least) {
    let busy = false, again = false;
    return async function start() {
      if (busy) { again = true; return; }
      busy = true;
      const began = performance.now();
      try { await how(); } catch (error) { say(error.message); }
      const rest = Math.max(least, (performance.now() - began) * (least > 0));
      setTimeout(() => { busy = false; if (again) { again = false; start(); } }, rest);
    };
  }
  function keep() {
    const changed = Object.entries(view).filter(([name, value]) => String(value) !== STARTS[name]);
    history.replaceState(null, "", `${location.pathname}${location.search}#${new URLSearchParams(changed)}`);
  }

  // which runs, and in which groups
  function shown() {
    const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
    return [...rows.values()].filter((row) => {
      if (view.running && row.status !== "running") return false;
      return words.every((word) => {
        const [name, value] = word.split("=");
        if (value === undefined) return row.search.includes(word);
        const own = { ...row.settings, seed: row.seed, status: row.status, job: row.job, run: row.run };
        return Object.entries(own).some(([key, text]) => key.toLowerCase() === name && String(text).toLowerCase() === value);
      });
    });
  }
  const places = new Map(); // a group keeps its colour
  function grouped() {
    const by = view.by.split(",").filter(Boolean), groups = new Map();
    for (const row of shown()) {
      const facet = view.facet ? row.settings[view.facet] ?? "" : "";
      const name = by.length ? by.map((key) => `${key} ${row.settings[key] ?? "–"}`).join(" · ") : row.group;
      const key = `${facet}\n${name}`;
      if (!groups.has(key)) groups.set(key, { name, facet, key, runs: [] });
      groups.get(key).runs.push(row.run);
    }
    const found = [...groups.values()].sort((a, b) => a.key.localeCompare(b.key, "en", { numeric: true }));
    for (const { name } of found) if (!places.has(name)) places.set(name, places.size);
    return found;
  }

  // the table of runs
  const COLUMNS = {
    run: { head: "Run", words: true, sort: (row) => row.run },
    group: { head: "Group", words: true, text: (row) => row.group },
    seed: { head: "Seed", text: (row) => row.seed, sort: (row) => Number(row.seed) },
    status: { head: "Status", words: true, text: (row) => row.status + (row.disturbed ? ", disturbed" : "") },
    stop: { head: "Stop" },
    value: { head: "Last value", text: (row) => row.value == null ? "–" : `${row.metric} ${number(row.value)}`, sort: (row) => row.value },
    wall_s: { head: "Wall time", text: (row) => seconds(row.wall_s), sort: (row) => row.wall_s },
    left: { head: "Time left", words: true, text: (row) => row.left },
    reached_s: { head: "Target reached", text: (row) => seconds(row.time_to_target_s), sort: (row) => row.time_to_target_s ?? Infinity },
    started: { head: "Started", text: (row) => row.started_at.slice(0, 16).replace("T", " "), sort: (row) => row.started_at },
  };
  for (const [name, { head, words }] of Object.entries(COLUMNS)) {
    const cell = element("th", undefined, { scope: "col", ...(words ? { class: "words" } : {}) });
    if (name === "stop") cell.textContent = head;
    else {
      const button = cell.appendChild(element("button", head, { type: "button" }));
      button.addEventListener("click", () => {
        view.up = view.sort === name && !view.up ? "1" : "";
        view.sort = name;
        renew();
      });
    }
    cell.dataset.column = name;
    byId("heads").append(cell);
  }
  const lines = new Map(); // elements are kept, so that the focus stays where it is
  function line(row) {
    if (!lines.has(row.run)) {
      const made = element("tr");
      for (const [name, { words }] of Object.entries(COLUMNS)) {
        const cell = made.appendChild(name === "run" ? element("th", undefined, { scope: "row" }) : element("td"));
        if (words) cell.className = "words";
        if (name === "run") cell.append(element("button", row.run, { type: "button", title: cut(row.run, 300) }));
      }
      made.cells[0].firstChild.addEventListener("click", () => open(row.run));
      lines.set(row.run, made);
    }
    const made = lines.get(row.run);
    Object.entries(COLUMNS).forEach(([name, { text }], place) => {
      const cell = made.cells[place];
      if (text) {
        const now = cut(text(row), 90);
        if (cell.textContent !== now) { cell.textContent = now; cell.title = cut(text(row), 300); }
      } else if (name === "stop" && (row.status === "running") !== (cell.childElementCount > 0)) {
        cell.replaceChildren();
        if (row.status !== "running") return;
        const button = cell.appendChild(element("button", "Stop", { type: "button", "aria-label": `Stop ${row.run}` }));
        button.addEventListener("click", () => askToStop(row.run));
      }
    });
    made.cells[3].classList.toggle("going", row.status === "running");
    made.cells[3].classList.toggle("mark", ["failed", "interrupted"].includes(row.status));
    return made;
  }
  function fillTable() {
    const { sort = COLUMNS[view.sort]?.text } = COLUMNS[view.sort] ?? COLUMNS.started;
    const found = shown().map((row) => [sort(row), row]);
    const order = (a, b) => a == null || a !== a ? 1 : b == null || b !== b ? -1 : typeof a === "number" ? b - a : a < b ? 1 : a > b ? -1 : 0;
    found.sort(([a], [b]) => view.up ? order(b, a) : order(a, b));
    const now = found.slice(0, all ? Infinity : SHOWN).map(([, row]) => line(row)), body = byId("rows");
    now.forEach((made, place) => { if (body.children[place] !== made) body.insertBefore(made, body.children[place] ?? null); });
    while (body.childElementCount > now.length) body.lastElementChild.remove();
    for (const cell of byId("heads").cells) {
      cell.removeAttribute("aria-sort");
      if (cell.dataset.column === view.sort) cell.setAttribute("aria-sort", view.up ? "ascending" : "descending");
    }
    byId("count").textContent = `${counted(found.length, "run")}${found.length < rows.size ? ` of ${rows.size}` : ""}`;
    byId("all").hidden = all || found.length <= SHOWN;
    byId("all").textContent = `Show all ${found.length} runs`;
  }
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // the choices
  function options(id, entries, value, empty) {
    const select = byId(id), wanted = JSON.stringify([entries, empty]);
    if (select.dataset.holds !== wanted) {
      select.replaceChildren(...(empty === undefined ? [] : [new Option(empty, "")]), ...entries.map(([key, text]) => new Option(cut(text), key)));
      select.dataset.holds = wanted;
    }
    select.value = value;
    if (select.selectedIndex < 0) select.selectedIndex = 0;
    return select.value;
  }
  function fillChoices() {
    view.metric = options("metric", news.metrics.map((name) => [name, name]), view.metric);
    const settings = Object.entries(news.varying);
    options("facet", settings.filter(([, count]) => count <= MOST_FACETS).map(([name, count]) => [name, `${name} (${count} values)`]), view.facet, "one panel");
    const wanted = JSON.stringify(settings), chosen = view.by.split(",");
    if (byId("by").dataset.holds !== wanted) {
      byId("by").dataset.holds = wanted;
      byId("by").replaceChildren(...settings.slice(0, 40).map(([name, count]) => {
        const label = element("label", undefined, { class: "check" });
        const box = label.appendChild(element("input", undefined, { type: "checkbox", value: name }));
        box.checked = chosen.includes(name);
        box.addEventListener("change", () => {
          view.by = [...byId("by").querySelectorAll("input:checked")].map((each) => each.value).join(",");
          renew();
        });
        label.append(` ${cut(name)} (${count} values)`);
        return label;
      }));
      const same = Object.entries(news.same).map(([name, text]) => `${name} ${cut(text)}`);
      byId("same").textContent = same.length ? `The same in all runs: ${same.join(", ")}.` : "";
    }
    const groups = grouped().map(({ key, name, facet }) => [key, facet ? `${name} · ${view.facet} ${facet}` : name]);
    options("a", groups, view.a, "choose");
    options("b", groups, view.b, "choose");
    const latest = shown().sort((a, b) => a.started_at < b.started_at ? 1 : -1).slice(0, 200);
    if (view.machine && !latest.some(({ run }) => run === view.machine) && rows.has(view.machine)) latest.push(rows.get(view.machine));
    options("machine", latest.map(({ run }) => [run, run]), view.machine, "none");
    byId("smooth").value = view.smooth;
    byId("smooth-value").textContent = factor() ? `EMA ${factor()}` : "none";
    for (const name of ["from", "to", "target", "filter"]) if (document.activeElement !== byId(name)) byId(name).value = view[name];
    for (const name of ["running", "singles", "log"]) byId(name).checked = Boolean(view[name]);
    for (const choice of document.querySelectorAll('input[name="x"]')) choice.checked = choice.value === view.x;
  }
  const factor = () => Number((1 - 10 ** (-Number(view.smooth) / 10)).toFixed(4));
  const bound = (text) => text === "" ? null : Number(text);

  // the curves
  const numbers = ({ dtype, bdata }) => new (dtype === "f8" ? Float64Array : Float32Array)(Uint8Array.from(atob(bdata), (sign) => sign.charCodeAt(0)).buffer);
  const faint = (hex) => `rgba(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(",")},0.16)`;
  let drawn = null; // what the figure shows: the question, its groups and the answers
  const refreshCurves = oneAtATime(async () => {
    if (!view.metric) return;
    const groups = grouped().slice(0, MOST_GROUPS), div = byId("curves");
    const question = { metric: view.metric, x: view.x, width: Math.max(200, Math.round(div.clientWidth - 110)), start: bound(view.from),
      end: bound(view.to), smooth: factor(), singles: Boolean(view.singles) };
    const held = new Map(drawn?.answer.groups.map((own) => [own.tag, own]).filter(([tag]) => tag)); // which need not come again
    const both = [ask("curves", { ...question, known: [...held.keys()], groups: groups.map(({ runs }) => runs) })];
    if (view.machine) both.push(ask("counter", { ...question, run: view.machine, counter: view.counter }).catch((error) => ({ missing: error.message })));
    const [answer, machine] = await Promise.all(both);
    answer.groups = answer.groups.map((own) => held.get(own.tag) ?? own);
    drawn = { question, groups, answer, machine, left: grouped().length - groups.length };
    draw();
  }, 0);
  function draw() {
    if (!drawn) return;
    const { question, groups, answer, machine } = drawn;
    const palette = palettes[window.labkitReport.isDark() ? "labkit_dark" : "labkit_light"];
    const facets = [...new Set(groups.map(({ facet }) => facet))], traces = [];
    const axis = (letter, facet) => `${letter}${facets.indexOf(facet) ? facets.indexOf(facet) + 1 : ""}`;
    const named = new Set(), isMany = groups.length > MANY, joined = new Map(); // many groups of seeds: a trace for all of one look
    groups.forEach((group, at) => {
      const own = answer.groups[at], place = places.get(group.name), look = looks[place % looks.length];
      if (!own.runs && !own.odd_count) return;
      const hex = palette[place % palette.length], text = plain(cut(group.name, 80));
      const common = { type: "scatter", legendgroup: group.name, xaxis: axis("x", group.facet), yaxis: axis("y", group.facet), name: text };
      const quiet = { ...common, showlegend: false };
      const meta = { group: group.key, run: group.runs.length === 1 ? group.runs[0] : null };
      const stroke = { color: hex, dash: look.dash, width: 2 };
      const hover = (words) => `<b>${plain(cut(question.metric, 40))} %{y:.5~g}</b> at %{x:,.6~g}<extra>${words}</extra>`;
      if (own.low) {
        const edge = { ...quiet, x: own.x, mode: "lines", line: { width: 0, color: hex }, hoverinfo: "skip", meta: { kind: "band" } };
        traces.push({ ...edge, y: own.low }, { ...edge, y: own.high, fill: "tonexty", fillcolor: faint(hex) });
      }
      const singles = own.runs === 1 || answer.singles ? own.curves ?? [] : [];
      const asMain = own.runs === 1 && !question.smooth;
      for (const curve of singles) {
        const short = curve.x.bdata.length < 1000; // of fewer points each has a mark
        traces.push({ ...quiet, x: curve.x, y: curve.y, mode: short && asMain ? "lines+markers" : "lines", marker: { symbol: look.symbol, size: 6, color: hex },
          line: asMain ? stroke : { color: hex, width: 1 }, opacity: asMain ? 1 : question.smooth ? 0.3 : 0.55,
          showlegend: asMain && !named.has(group.name), hovertemplate: hover(`${text}<br>${plain(curve.run)}`), meta: { kind: "run", run: curve.run } });
        if (curve.smooth_x && own.runs > 1) traces.push({ ...traces.at(-1), x: curve.smooth_x, y: curve.smooth_y, opacity: 0.8, mode: "lines" });
      }
      if (!asMain) {
        const words = `${text}<br>mean of ${own.runs}`, mean = { ...common, mode: "lines", line: { ...stroke, width: 2.5 }, meta: { ...meta, kind: "mean" } };
        if (!isMany || own.runs === 1) traces.push({ ...mean, x: own.x, y: own.y, showlegend: !named.has(group.name), hovertemplate: hover(words) });
        else {
          const key = [hex, look.dash, common.xaxis].join(), [x, y] = own.means ??= [own.x, own.y].map(numbers);
          if (!joined.has(key)) traces.push(joined.set(key, { ...mean, name: "", legendgroup: "", showlegend: false, x: [], y: [], text: [], hovertemplate: hover("%{text}"), meta: { kind: "means" } }).get(key));
          const trace = joined.get(key);
          trace.x.push(...x, null); trace.y.push(...y, null);
          for (let place = 0; place <= x.length; place++) trace.text.push(words);
        }
      }
      named.add(group.name);
      if (facets.length > 1) return;
      Object.entries(own.odd).forEach(([kind, where]) => {
        const height = kind === "NaN" ? 0.03 : kind === "+∞" ? 0.97 : 0.09;
        if (where.length) traces.push({ ...quiet, x: where, y: where.map(() => height), yaxis: "y9", mode: "markers", meta: { kind: "odd" },
          marker: { symbol: kind === "NaN" ? "x" : kind === "+∞" ? "triangle-up" : "triangle-down", size: 10, color: hex, line: { width: 1, color: colour("--ink") } },
          hovertemplate: `${kind} at %{x:,.6~g}<extra>${text}</extra>` });
      });
    });
    const layout = layoutOf(question, facets, machine, traces);
    window.Plotly.react(byId("curves"), traces, layout, { ...config, responsive: true });
    describe();
  }
  function layoutOf(question, facets, machine, traces) {
    const look = { gridcolor: colour("--line"), linecolor: colour("--line-strong"), tickcolor: colour("--line-strong"), ticks: "outside", zeroline: false, automargin: true };
    const range = question.start !== null && question.end !== null ? { range: [question.start, question.end], autorange: false } : { autorange: true };
    const x = { ...look, ...range, title: { text: AXES[question.x] } };
    const y = { ...look, title: { text: plain(cut(question.metric)) }, type: view.log ? "log" : "linear" };
    const layout = { paper_bgcolor: colour("--card"), plot_bgcolor: colour("--card"), font: { color: colour("--ink"), size: 13 }, hovermode: "closest",
      height: 460, margin: { l: 60, r: 64, t: 30, b: 56 }, modebar: { orientation: "v" }, showlegend: traces.filter(({ showlegend }) => showlegend).length <= MANY,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, uirevision: view.metric, shapes: [], annotations: [],
      hoverlabel: { bgcolor: colour("--card"), font: { color: colour("--ink") } } };
    x.uirevision = y.uirevision = JSON.stringify([question.start, question.end, question.x, question.metric, view.log]);
    if (facets.length > 1) {
      const across = Math.min(3, facets.length), down = Math.ceil(facets.length / across);
      layout.height = 60 + 300 * down;
      facets.forEach((facet, at) => {
        const [column, row] = [at % across, Math.floor(at / across)], name = at ? at + 1 : "", link = at ? { matches: "x" } : {};
        const across1 = [(column + 0.09 * (column > 0)) / across, (column + 0.93) / across], down1 = [1 - (row + 0.82) / down, 1 - (row + 0.07) / down];
        layout[`xaxis${name}`] = { ...x, ...link, domain: across1, anchor: `y${name}`, title: row === down - 1 ? x.title : undefined };
        layout[`yaxis${name}`] = { ...y, ...(at ? { matches: "y" } : {}), domain: down1, anchor: `x${name}`, title: column ? undefined : y.title };
        layout.annotations.push({ text: plain(cut(`${view.facet} ${facet}`)), x: across1[0], y: down1[1], xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false });
      });
      return layout;
    }
    const under = machine?.x;
    layout.xaxis = { ...x, anchor: under ? "y2" : "y" };
    layout.yaxis = { ...y, domain: under ? [0.36, 1] : [0, 1] };
    layout.yaxis9 = { overlaying: "y", range: [0, 1], fixedrange: true, visible: false };
    if (under) {
      layout.height = 620;
      layout.yaxis2 = { ...look, domain: [0, 0.27], title: { text: plain(cut(machine.title, 40)) }, rangemode: "tozero" };
      traces.push({ type: "scatter", x: machine.x, y: machine.y, yaxis: "y2", mode: "lines", line: { color: colour("--ink"), width: 1.3 }, name: plain(cut(`${machine.run} · ${machine.title}`, 90)),
        hovertemplate: "%{y:.4~g} at %{x:,.5~g}<extra></extra>", meta: { kind: "counter", run: machine.run } });
    }
    const kinds = [...new Set((machine?.spans ?? []).map(({ kind }) => kind))];
    for (const span of machine?.spans ?? []) layout.shapes.push({ type: "rect", xref: "x", yref: "paper", x0: span.from, x1: span.to, y0: 0, y1: 1, line: { width: 0 },
      layer: "below", fillcolor: span.kind === "evaluation" ? colour("--line") : faint(palettes.labkit_light[1 + kinds.indexOf(span.kind) % 4]), label: undefined });
    return layout;
  }
  function describe() {
    const { question, groups, answer, machine, left } = drawn, body = byId("ranges").tBodies[0];
    const known = groups.map((group, at) => ({ group, own: answer.groups[at] })).filter(({ own }) => own.range || own.odd_count);
    body.replaceChildren(...known.slice(0, 100).map(({ group, own }) => {
      const made = element("tr");
      made.append(element("th", cut(group.facet ? `${group.name} · ${view.facet} ${group.facet}` : group.name, 80), { scope: "row" }));
      for (const text of [own.runs, ...["low", "high", "mean", "last"].map((name) => number(own.range?.[name]))]) made.append(element("td", text));
      return made;
    }));
    const kinds = [...new Set(known.map(({ own }) => own.kind.replace(/ of \d+ runs$/, "")).filter(Boolean))];
    const odd = known.reduce((sum, { own }) => sum + own.odd_count, 0);
    const spans = [...new Set((machine?.spans ?? []).map(({ kind }) => kind))];
    byId("caption").textContent = [
      kinds.length ? `Shading: ${kinds.join(", ")}, where at least half of the runs still are.` : "",
      groups.length > MANY ? "More than 40 groups are drawn without their bands." : "",
      left > 0 ? `${counted(left, "group")} more not drawn: filter the runs.` : "",
      question.smooth ? `Smoothed by an exponential moving average that keeps ${question.smooth} per row; thin lines are not smoothed.` : "",
      answer.spent.length ? `Horizontal axis: ${answer.spent.join("; ")}.` : "",
      answer.exact ? "Every row is drawn." : "Of long runs the lowest and highest row of each stretch are drawn, and means of stretches.",
      view.singles && !answer.singles ? `${answer.runs} single curves are too many to draw: filter the runs.` : "",
      odd ? `${counted(odd, "value")} that ${odd === 1 ? "is" : "are"} no number: a cross marks NaN, a triangle infinity.` : "",
      spans.length ? `Shaded under the run: ${spans.join(", ")}.` : "", machine?.missing ?? "",
    ].filter(Boolean).join(" ");
    const words = known.slice(0, 12).map(({ group, own }) => `${cut(group.name)}: last ${number(own.range?.last)}`);
    byId("curves").setAttribute("aria-label", `Line chart of ${question.metric} against ${AXES[question.x]}, ${counted(known.length, "group")}. ${words.join("; ")}.`);
    if (machine) {
      const counter = options("counter", machine.counters?.map((name) => [name, name]) ?? [], view.counter, "none");
      if (counter !== view.counter) view.counter = counter;
    }
  }
  let zooming;
  function zoomed(change) {
    const start = Object.keys(change).find((key) => /^xaxis\d*\.range\[0\]$/.test(key));
    if (start) [view.from, view.to] = [change[start], change[start.replace("[0]", "[1]")]].map((value) => String(Number(value.toPrecision(6))));
    else if (Object.keys(change).some((key) => /^xaxis\d*\.autorange$/.test(key))) view.from = view.to = "";
    else return;
    clearTimeout(zooming);
    zooming = setTimeout(() => { fillChoices(); keep(); refreshCurves(); }, 30);
  }

  // the report's sections, and two groups compared
  const placed = new Set();
  const refreshSections = oneAtATime(async () => {
    const names = shown().filter(({ counted }) => counted).map(({ run }) => run);
    const sections = await ask("report", { runs: names }), held = byId("sections");
    for (const { id, html, payload, problem } of sections) {
      const made = problem ? element("section", problem, { class: "job", id }) : new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
      const before = byId(id), focus = document.activeElement?.id;
      if (before) {
        for (const plot of before.querySelectorAll(".plot")) made.querySelector(`[id="${plot.id}"]`)?.replaceWith(plot); // which keeps its zoom
        if (before.querySelector("details")?.open && made.querySelector("details")) made.querySelector("details").open = true;
        before.replaceWith(made);
      } else held.append(made);
      placed.add(id);
      if (!problem) window.labkitReport.show(payload);
      if (focus && document.activeElement?.id !== focus && made.contains(byId(focus))) byId(focus).focus();
    }
    for (const id of placed) if (!sections.some((section) => section.id === id)) { byId(id)?.remove(); placed.delete(id); }
    await compare();
  }, 1500);
  let near = false;
  new IntersectionObserver((entries) => {
    near = entries.at(-1).isIntersecting;
    if (near) refreshSections();
  }, { rootMargin: "100px" }).observe(byId("sections"));
  byId("sections").style.minHeight = "1px";
  async function compare() {
    const groups = new Map(grouped().map((group) => [group.key, group])), [a, b] = [groups.get(view.a), groups.get(view.b)];
    if (!a || !b) return byId("compared").replaceChildren();
    let texts;
    try {
      const answer = await ask("compare", { a: a.runs, b: b.runs, target: bound(view.target) });
      texts = [answer.finding, ...answer.lines.map((text, at) => `${"AB"[at]}, ${[a, b][at].name}: ${text}.`), answer.best];
    } catch (error) { texts = [error.message]; }
    if (JSON.stringify(texts) !== byId("compared").dataset.holds) {
      byId("compared").dataset.holds = JSON.stringify(texts);
      byId("compared").replaceChildren(...texts.map((text) => element("li", text)));
    }
  }

  // one run
  async function open(run) {
    let found;
    try { found = await ask("facts", { run }); } catch (error) { return say(error.message); }
    const list = element("dl", undefined, { class: "facts" });
    for (const [term, words] of Object.entries(found.facts)) {
      const pair = list.appendChild(element("div"));
      pair.append(element("dt", term), element("dd", words));
    }
    const texts = [["Settings", found.settings], ["Result", found.result]].map(([title, values]) => {
      const part = element("details");
      part.append(element("summary", title), element("pre", Object.entries(values).map(([name, value]) => `${name}: ${value}`).join("\n"), { tabindex: "0" }));
      return part;
    });
    byId("run-title").textContent = cut(run, 120);
    byId("run-facts").replaceChildren(list, element("pre", found.events.join("\n"), { tabindex: "0", "aria-label": "Its latest events" }), ...texts, element("p", "In code: "));
    byId("run-facts").lastElementChild.append(element("code", found.code));
    byId("run-profile").hidden = !rows.get(run)?.profiled;
    byId("run-profile").href = `profile?run=${encodeURIComponent(run)}&token=${encodeURIComponent(token)}`;
    byId("run").dataset.run = run;
    if (!byId("run").open) byId("run").showModal();
  }
  byId("run-close").addEventListener("click", () => byId("run").close());
  byId("run-machine").addEventListener("click", () => {
    view.machine = byId("run").dataset.run;
    byId("run").close();
    renew();
    byId("counter").focus();
  });
  let stopping = "";
  function askToStop(run) {
    stopping = run;
    byId("ask-text").textContent = `${run} ends after its step under way, with everything saved. It cannot be taken back, but the run can be resumed.`;
    byId("ask").showModal();
    byId("ask-no").focus();
  }
  byId("ask-no").addEventListener("click", () => byId("ask").close());
  byId("ask-yes").addEventListener("click", async () => {
    byId("ask").close();
    try { tell((await ask("stop", { run: stopping })).said); } catch (error) { tell(error.message); }
  });
  function tell(text) { byId("state").textContent = text; say(text); }

  // what changes what is shown
  function renew() {
    keep();
    fillTable();
    fillChoices();
    refreshCurves();
    if (near) refreshSections(); else compare();
  }
  const on = (id, event, how) => byId(id).addEventListener(event, how);
  for (const id of ["filter", "from", "to", "target"]) {
    let waiting;
    on(id, "input", () => { view[id] = byId(id).value; clearTimeout(waiting); waiting = setTimeout(renew, 150); });
  }
  for (const id of ["running", "singles", "log"]) on(id, "change", () => { view[id] = byId(id).checked ? "1" : ""; renew(); });
  for (const id of ["metric", "facet", "machine", "counter", "a", "b"]) on(id, "change", () => { view[id] = byId(id).value; renew(); });
  on("smooth", "input", () => { view.smooth = byId("smooth").value; renew(); });
  for (const choice of document.querySelectorAll('input[name="x"]')) {
    choice.addEventListener("change", () => { view.x = choice.value; view.from = view.to = ""; renew(); });
  }
  on("whole", "click", () => { view.from = view.to = ""; renew(); });
  on("all", "click", () => { all = true; fillTable(); });
  on("link", "click", async () => {
    keep();
    try { await navigator.clipboard.writeText(location.href); tell("The link to this view was copied. It opens while this server runs."); }
    catch { tell(`The link to this view is in the address bar: ${location.href}`); }
  });
  on("png", "click", () => window.Plotly.downloadImage(byId("curves"), { format: "png", filename: `labkit-${view.metric}`, width: 1400, height: 700, scale: 2 }));
  on("csv", "click", async () => {
    const reply = await fetch(`table.csv?token=${encodeURIComponent(token)}`, { method: "POST", body: JSON.stringify({ runs: shown().map(({ run }) => run), metric: view.metric }) });
    const link = element("a", undefined, { href: URL.createObjectURL(await reply.blob()), download: `labkit-${view.metric}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
  document.addEventListener("labkit-theme", () => draw());
  window.addEventListener("hashchange", () => {
    Object.assign(view, STARTS, Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
    delete byId("by").dataset.holds;
    renew();
  });

  // news
  function take(message) {
    if (fresh) { rows.clear(); fresh = false; }
    news = message;
    let grew = message.gone.length > 0, evaluated = grew;
    for (const run of message.gone) { rows.delete(run); lines.get(run)?.remove(); lines.delete(run); }
    for (const row of message.rows) {
      const before = rows.get(row.run);
      row.search = [row.run, row.group, row.status, row.job, ...Object.entries(row.settings).map((pair) => pair.join(" "))].join(" ").toLowerCase();
      grew ||= before?.version !== row.version || before.group !== row.group;
      evaluated ||= before?.value !== row.value || before.status !== row.status || before.group !== row.group;
      rows.set(row.run, row);
    }
    const going = [...rows.values()].filter(({ status }) => status === "running").length;
    byId("state").textContent = message.unread ? `Reading the runs: ${message.unread} are left …`
      : rows.size ? `${counted(rows.size, "run")}, ${going} running; as of ${new Date().toLocaleTimeString("en-GB")}.` : "No runs yet: they appear here as they start.";
    byId("left-out").hidden = !message.notes.length;
    byId("left-out").firstElementChild.textContent = `Left out (${message.notes.length})`;
    byId("notes").replaceChildren(...message.notes.map((note) => element("li", note)));
    fillTable();
    fillChoices();
    if (grew) refreshCurves();
    if (evaluated && near) refreshSections(); else if (evaluated) compare();
    document.documentElement.dataset.version = message.version;
  }
  function listen() {
    const source = new EventSource(`events?token=${encodeURIComponent(token)}&since=-1`);
    fresh = true;
    source.onmessage = ({ data }) => take(JSON.parse(data));
    source.onerror = () => {
      source.close();
      tell("The server does not answer: what is shown stays, and the page asks again. If it was ended, start `labkit live` again.");
      setTimeout(listen, 2000);
    };
  }
  const div = byId("curves");
  window.Plotly.newPlot(div, [], { height: 460, paper_bgcolor: colour("--card"), plot_bgcolor: colour("--card") }, { ...config, responsive: true }).then(() => {
    div.on("plotly_relayout", zoomed);
    div.on("plotly_click", ({ points }) => { const run = points[0]?.data.meta?.run; if (run) open(run); });
  });
  listen();
})();
