/* The report page: keeps figure, table and words in step with the target slider, the x axis and the theme.
   The analysis here repeats labkit.tta (first crossing, Kaplan-Meier); a test holds the two to the same answers.
   Text from runs enters the page through textContent only. */
"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const root = document.documentElement;
  const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 720px)");
  const byId = (id) => document.getElementById(id);
  const states = report.jobs.map((job) => ({ job, target: job.target, x: job.axes.length ? job.axes[0].key : "wall_s" }));

  // ---- numbers in words: as labkit/plots/words.py and labkit/report/table.py ----
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  function secondsText(seconds) {
    if (!isNumber(seconds)) return "not reached";
    if (seconds < 1) return `${seconds.toFixed(seconds >= 0.1 ? 2 : 3)} s`;
    if (seconds < 300) return `${seconds.toFixed(1)} s`;
    if (seconds < 7200) return `${(seconds / 60).toFixed(1)} min`;
    return `${(seconds / 3600).toFixed(2)} h`;
  }
  function countText(count) {
    if (!isNumber(count)) return "–";
    if (count < 1000) return count.toFixed(0);
    if (count < 999950) return `${(count / 1000).toFixed(1)} k`;
    return `${(count / 1e6).toFixed(2)} M`;
  }
  function usdText(usd) {
    if (!isNumber(usd)) return "–";
    if (usd < 0.01) return `${(usd * 100).toFixed(3)} ¢`;
    return usd < 1 ? `${(usd * 100).toFixed(2)} ¢` : `$${usd.toFixed(2)}`;
  }
  function axisText(value, x) {
    if (!isNumber(value)) return "not reached";
    return { samples: countText, cost_usd: usdText }[x]?.(value) ?? secondsText(value);
  }
  function timeText(median, low, high) {
    if (!isNumber(median)) return "not reached";
    return low === high ? secondsText(median) : `${secondsText(median)} (${secondsText(low)} – ${secondsText(high)})`;
  }
  function kmText(km) {
    if (!isNumber(km.median) || Number.isNaN(km.low)) return secondsText(km.median);
    const upper = isNumber(km.high) ? secondsText(km.high) : "no bound";
    return `${secondsText(km.median)} (95 % CI ${secondsText(km.low)} – ${upper})`;
  }
  const targetText = (target) => String(Number(target.toPrecision(6)));

  // ---- analysis: as labkit/tta ----
  const passes = (job, value, target) =>
    value !== null && (job.higher_is_better ? value >= target : value <= target);
  function median(values) {
    if (!values.length) return NaN;
    const sorted = [...values].sort((a, b) => a - b);
    const middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }
  function column(run, group, x) {
    return x === "cost_usd" ? run.wall_s.map((s) => (s * group.price_usd_per_h) / 3600) : run[x];
  }
  function crossing(job, group, run, target, x) {
    const place = group.price_usd_per_h === null && x === "cost_usd" ? run.value.map(() => NaN) : column(run, group, x);
    const index = run.value.findIndex((value) => passes(job, value, target));
    let sustained = run.value.length;
    while (sustained > 0 && passes(job, run.value[sustained - 1], target)) sustained -= 1;
    const held = sustained < run.value.length;
    return {
      reached: index >= 0, index, time: index >= 0 ? place[index] : NaN, samples: index >= 0 ? run.samples[index] : NaN,
      sustained: held, sustainedTime: held ? place[sustained] : NaN, last: place.length ? place[place.length - 1] : 0,
    };
  }
  function survivalCurve(hits) {
    const rows = hits.map((hit) => ({ time: hit.reached ? hit.time : hit.last, event: hit.reached }));
    const times = [...new Set([0, ...rows.map((row) => row.time)])].sort((a, b) => a - b);
    let waiting = 1;
    let variance = 0;
    return times.map((time) => {
      const risk = rows.filter((row) => row.time >= time).length;
      const events = rows.filter((row) => row.time === time && row.event).length;
      if (events) {
        waiting *= (risk - events) / risk;
        if (risk > events) variance += events / (risk * (risk - events));
      }
      const log = Math.log(waiting);
      const bound = (sign) => Math.exp(-Math.exp(Math.log(-log) + (sign * 1.959963984540054 * Math.sqrt(variance)) / log));
      const known = (share) => (Number.isNaN(share) ? 1 : share);
      return { time, waiting, low: known(bound(-1)), high: known(bound(1)) };
    });
  }
  function kaplanMeier(hits) {
    const reached = hits.filter((hit) => hit.reached).length;
    if (2 * reached < hits.length || reached === 0) return { median: Infinity, low: NaN, high: NaN };
    const curve = survivalCurve(hits);
    const half = (key, middle) => {
      const first = curve.find((point) => point[key] < 0.5 + 1e-9);
      if (!first) return Infinity;
      const below = curve.find((point) => point[key] < 0.5 - 1e-9);
      return middle && below && below.time > first.time ? (first.time + below.time) / 2 : first.time;
    };
    const found = half("waiting", true);
    if (hits.length < report.min_runs_for_interval || !isNumber(found)) return { median: found, low: NaN, high: NaN };
    return { median: found, low: half("low"), high: half("high") };
  }
  function analyse(job, target, x) {
    const clock = x === "train_s" ? "train_s" : "wall_s";
    return job.groups.map((group) => {
      const hits = group.runs.map((run) => crossing(job, group, run, target, clock));
      const times = hits.filter((hit) => hit.reached).map((hit) => hit.time);
      const wall = kaplanMeier(group.runs.map((run) => crossing(job, group, run, target, "wall_s")));
      const axisHits = group.runs.map((run) => crossing(job, group, run, target, x));
      return {
        group, hits, axisHits, reached: times.length, runs: group.runs.length,
        median: median(times), low: Math.min(...times), high: Math.max(...times), km: kaplanMeier(hits),
        samples: median(hits.filter((hit) => hit.reached).map((hit) => hit.samples)),
        cost: group.price_usd_per_h === null ? NaN : (wall.median * group.price_usd_per_h) / 3600,
        axis: kaplanMeier(axisHits).median,
      };
    });
  }

  // ---- theme ----
  function theme() {
    const chosen = root.dataset.theme;
    return report.themes[(chosen ? chosen === "dark" : darkScheme.matches) ? "dark" : "light"];
  }
  function paint(trace, look) {
    const color = look.colors[trace.meta.group % look.colors.length];
    if (trace.meta.kind === "band") {
      const channels = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
      trace.fillcolor = `rgba(${channels.join(",")},0.16)`;
      return;
    }
    trace.line = { ...trace.line, color };
    if (trace.marker) trace.marker = { ...trace.marker, color };
    if (trace.marker?.line) trace.marker.line = { ...trace.marker.line, color };
    if (trace.textfont) trace.textfont = { ...trace.textfont, color: look.ink };
  }

  // ---- drawing ----
  const config = {
    responsive: true,
    displaylogo: false,
    plotlyServerURL: "", // plotly's toolbar has a button that uploads the chart: neither the button nor the address
    modeBarButtonsToRemove: ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
  };
  function layoutOf(figure, look, x) {
    const layout = structuredClone(figure.layout);
    layout.template = look.template;
    layout.uirevision = x; // zoom and hidden series survive the slider, not a change of axis
    layout.autosize = true;
    const lines = new Set(figure.data.map((trace) => trace.meta.group)).size; // the legend stacks on a narrow page
    if (narrow.matches) layout.height = 340 + 22 * lines;
    if (narrow.matches) layout.margin = { l: 48, r: 44, t: 40, b: 48 };
    for (const shape of layout.shapes) shape.line.color = look.ink;
    return layout;
  }
  function drawCurves(state, rows, look) {
    const { job, target, x } = state;
    const layout = layoutOf(job.figure, look, x);
    const log = layout.yaxis.type === "log";
    const [bottom, top] = layout.yaxis.range; // exponents of ten on a logarithmic axis
    const onAxis = (value) => (log ? Math.log10(value) : value);
    const valueAt = (share) => (log ? 10 ** (bottom + share * (top - bottom)) : bottom + share * (top - bottom));
    const priced = (group) => x !== "cost_usd" || group.price_usd_per_h !== null;
    const longest = Math.max(
      ...job.groups.filter(priced).flatMap((group) => group.runs.flatMap((run) => column(run, group, x).slice(-1))));
    const traces = structuredClone(job.figure.data);
    for (const trace of traces) {
      const { kind, group: number } = trace.meta;
      const row = rows[job.drawn[number]];
      const group = row.group;
      paint(trace, look);
      if (kind === "run") {
        const run = group.runs.find((one) => one.run === trace.meta.run);
        trace.x = priced(group) ? column(run, group, x) : [];
        trace.y = run.value;
      } else if (kind === "band") {
        const band = job.bands[x]?.[number];
        trace.x = band ? band.x : [];
        trace.y = band ? band.y : [];
      } else if (kind === "reached") {
        const met = row.axisHits.map((hit, at) => [hit, group.runs[at]]).filter(([hit]) => hit.reached && priced(group));
        trace.x = met.map(([hit]) => hit.time);
        trace.y = met.map(([hit, run]) => run.value[hit.index]);
      } else {
        const there = isNumber(row.axis);
        trace.x = there ? [row.axis, row.axis, row.axis] : [];
        trace.y = there ? [target, valueAt(0.03 + 0.075 * number), valueAt(0)] : [];
        trace.text = there ? ["", ` ${axisText(row.axis, x)} `, ""] : [];
        trace.textposition = row.axis > 0.75 * longest ? "middle left" : "middle right";
      }
    }
    layout.xaxis.title.text = job.axes.find((axis) => axis.key === x).title;
    layout.xaxis.range = [0, 1.03 * longest];
    const margin = 0.05 * (top - bottom);
    layout.yaxis.range = [Math.min(bottom, onAxis(target) - margin), Math.max(top, onAxis(target) + margin)];
    Object.assign(layout.shapes[0], { y0: target, y1: target });
    Object.assign(layout.annotations[0], { y: onAxis(target), text: `target<br>${targetText(target)}` });
    window.Plotly.react(byId(`${job.id}-curves`), traces, layout, config);
  }
  function drawTargets(state, look) {
    const { job, target, x } = state;
    const layout = layoutOf(job.target_figure, look, x);
    const traces = structuredClone(job.target_figure.data);
    const table = job.groups.map((group) => job.grid.map((goal) => {
      const hits = group.runs.map((run) => crossing(job, group, run, goal, x));
      const times = hits.filter((hit) => hit.reached).map((hit) => hit.time);
      return { goal, median: kaplanMeier(hits).median, all: times.length === hits.length, low: Math.min(...times), high: Math.max(...times) };
    }));
    for (const trace of traces) {
      paint(trace, look);
      const rows = table[job.drawn[trace.meta.group]];
      if (trace.meta.kind === "band") {
        const full = rows.filter((row) => row.all && isNumber(row.low));
        trace.x = [...full.map((row) => row.goal), ...full.map((row) => row.goal).reverse()];
        trace.y = [...full.map((row) => row.low), ...full.map((row) => row.high).reverse()];
      } else {
        trace.x = rows.map((row) => row.goal);
        trace.y = rows.map((row) => (isNumber(row.median) ? row.median : null));
      }
    }
    layout.yaxis.title.text = job.axes.find((axis) => axis.key === x).target_title;
    Object.assign(layout.shapes[0], { x0: target, x1: target });
    window.Plotly.react(byId(`${job.id}-targets`), traces, layout, config);
  }

  // ---- words and tables ----
  function finding(state, rows) {
    const parts = [...rows].sort((a, b) => a.axis - b.axis || 0).map((row) => {
      return `${row.group.words} ${axisText(row.axis, state.x)} (${row.reached} of ${row.runs} runs)`;
    });
    const { metric_label: label } = state.job;
    return `Target ${label} ${targetText(state.target)}, median until it was reached: ${parts.join("; ")}.`;
  }
  function setCell(cell, text) {
    const at = text.indexOf(" (");
    cell.textContent = at < 0 ? text : text.slice(0, at);
    if (at < 0) return;
    const small = document.createElement("small");
    small.textContent = text.slice(at + 1);
    cell.append(" ", small);
  }
  function runText(hit, run) {
    if (!run.value.length) return `${run.status_words} before the first evaluation`;
    return hit.reached ? secondsText(hit.time) : `censored at ${secondsText(hit.last)}`;
  }
  function sustainedText(hit) {
    if (!hit.reached) return "";
    return hit.sustained ? `from ${secondsText(hit.sustainedTime)}` : "no, fell back";
  }
  function fillTables(state, rows) {
    const { job } = state;
    rows.forEach((row, number) => {
      const cells = byId(`${job.id}-row-${number}`).cells;
      setCell(cells[2], `${row.reached} of ${row.runs}`);
      setCell(cells[3], timeText(row.median, row.low, row.high));
      setCell(cells[4], kmText(row.km));
      setCell(cells[5], countText(row.samples));
      setCell(cells[9], usdText(row.cost));
      row.hits.forEach((hit, at) => {
        const line = byId(`${job.id}-run-${number}-${at}`).cells;
        line[5].textContent = runText(hit, row.group.runs[at]);
        line[6].textContent = sustainedText(hit);
      });
    });
    byId(`${job.id}-clock`).textContent = state.x === "train_s" ? "training time" : "wall time";
    byId(`${job.id}-caption-target`).textContent = `${job.metric_label} ${targetText(state.target)}`;
  }
  function update(state) {
    const { job, x, target } = state;
    const rows = analyse(job, target, x);
    fillTables(state, rows);
    const output = byId(`${job.id}-output`);
    if (!output) return; // a job whose runs were never evaluated has a table and nothing to draw
    output.textContent = `${job.metric_label} ${targetText(target)}`;
    byId(`${job.id}-target`).setAttribute("aria-valuetext", output.textContent);
    const look = theme();
    drawCurves(state, rows, look);
    drawTargets(state, look);
    const words = finding(state, rows);
    byId(`${job.id}-finding`).textContent = words;
    const axis = job.axes.find((one) => one.key === x);
    byId(`${job.id}-axis-words`).textContent = axis.title;
    const curves = byId(`${job.id}-curves`);
    curves.setAttribute("aria-label", byId(`${job.id}-description`).textContent.replace(/\s+/g, " ").trim());
  }

  // ---- controls ----
  for (const state of states) {
    const { job } = state;
    const slider = byId(`${job.id}-target`);
    if (!slider) continue;
    let waiting = false;
    const move = (value) => {
      state.target = Number(value);
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; update(state); });
    };
    slider.addEventListener("input", () => move(slider.value));
    slider.addEventListener("change", () => {
      byId("status").textContent = finding(state, analyse(job, state.target, state.x));
    });
    byId(`${job.id}-reset`).addEventListener("click", () => { slider.value = job.target; move(slider.value); });
    for (const choice of document.querySelectorAll(`input[name="${job.id}-x"]`)) {
      choice.addEventListener("change", () => { state.x = choice.value; update(state); });
    }
  }
  const button = byId("theme");
  function retheme() {
    button.textContent = theme() === report.themes.dark ? "Light background" : "Dark background";
    states.forEach(update);
  }
  button.addEventListener("click", () => {
    root.dataset.theme = theme() === report.themes.dark ? "light" : "dark";
    retheme();
  });
  darkScheme.addEventListener("change", retheme);
  narrow.addEventListener("change", () => states.forEach(update));
  retheme();
  let before;
  window.addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; retheme(); });
  window.addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    retheme();
  });
})();
