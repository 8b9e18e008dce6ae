/* The report page: keeps figure, table and words in step with the target slider, the x axis and the theme.
   All numbers and words are computed by labkit.report.lookup for every target of the slider; here they are looked up.
   Text from runs enters the page through textContent only. */
"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const root = document.documentElement;
  const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 720px)");
  const byId = (id) => document.getElementById(id);
  const states = report.jobs.filter((job) => job.axes.length).map((job) => ({ job, at: job.start, x: job.axes[0].key }));

  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  const targetText = (target) => String(Number(target.toPrecision(6)));
  /** The place of a drawn series among those of the axis x; -1 where it has none of it. */
  function placeOf(job, number, x) {
    const { budget, provenance } = job.groups[job.drawn[number]];
    return job.medians[x].series.findIndex(([name, kind]) => name === budget && kind === provenance);
  }
  const known = (run, x) => run[x].some(isNumber);

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
  function drawCurves(state, look) {
    const { job, at, x } = state;
    const target = job.grid[at];
    const layout = layoutOf(job.figure, look, x);
    const log = layout.yaxis.type === "log";
    const [bottom, top] = layout.yaxis.range; // exponents of ten on a logarithmic axis
    const onAxis = (value) => (log ? Math.log10(value) : value);
    const valueAt = (share) => (log ? 10 ** (bottom + share * (top - bottom)) : bottom + share * (top - bottom));
    const longest = Math.max(...job.groups.flatMap((group) => group.runs.flatMap((run) => run[x].slice(-1))));
    const traces = structuredClone(job.figure.data);
    for (const trace of traces) {
      const { kind, group: number } = trace.meta;
      const group = job.groups[job.drawn[number]];
      paint(trace, look);
      if (kind === "run") {
        const drawn = group.runs.filter((run) => run.value.length);
        const joined = (key) => drawn.flatMap((run, place) => (place ? [null, ...run[key]] : run[key]));
        trace.x = joined(x);
        trace.y = joined("value");
      } else if (kind === "band") {
        const band = job.bands[x]?.[number];
        trace.x = band ? band.x : [];
        trace.y = band ? band.y : [];
      } else if (kind === "reached") {
        const met = group.runs.map((run) => [run, job.first[at][run.number]]);
        const there = met.filter(([run, place]) => place >= 0 && known(run, x));
        trace.x = there.map(([run, place]) => run[x][place]);
        trace.y = there.map(([run, place]) => run.value[place]);
      } else {
        const place = placeOf(job, number, x);
        const median = place < 0 ? null : job.medians[x].median[at][place];
        const there = isNumber(median);
        trace.x = there ? [median, median, median] : [];
        trace.y = there ? [target, valueAt(0.03 + 0.075 * number), valueAt(0)] : [];
        trace.text = there ? ["", ` ${job.medians[x].label[at][place]} `, ""] : [];
        trace.textposition = median > 0.75 * longest ? "middle left" : "middle right";
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
    const { job, at, x } = state;
    const layout = layoutOf(job.target_figure, look, x);
    const traces = structuredClone(job.target_figure.data);
    for (const trace of traces) {
      paint(trace, look);
      const place = placeOf(job, trace.meta.group, x);
      const column = (key) => job.grid.map((_, goal) => (place < 0 ? null : job.medians[x][key][goal][place]));
      if (trace.meta.kind === "band") {
        const [low, high] = [column("low"), column("high")];
        const full = job.grid.map((_, goal) => goal).filter((goal) => isNumber(high[goal]));
        const back = [...full].reverse();
        trace.x = [...full, ...back].map((goal) => job.grid[goal]);
        trace.y = [...full.map((goal) => low[goal]), ...back.map((goal) => high[goal])];
      } else {
        trace.x = job.grid;
        trace.y = column("median");
      }
    }
    layout.yaxis.title.text = job.axes.find((axis) => axis.key === x).target_title;
    Object.assign(layout.shapes[0], { x0: job.grid[at], x1: job.grid[at] });
    window.Plotly.react(byId(`${job.id}-targets`), traces, layout, config);
  }

  // ---- words and tables ----
  function setCell(cell, text) {
    const at = text.indexOf(" (");
    cell.textContent = at < 0 ? text : text.slice(0, at);
    if (at < 0) return;
    const small = document.createElement("small");
    small.textContent = text.slice(at + 1);
    cell.append(" ", small);
  }
  const CELLS = [2, 3, 4, 5, 9]; // the columns that follow the target
  function fillTables(state) {
    const { job, at, x } = state;
    const clock = x === "train_s" ? "train_s" : "wall_s";
    job.groups.forEach((group, number) => {
      const { cells } = byId(`${job.id}-row-${number}`);
      job.cells[clock][at][number].forEach((text, column) => setCell(cells[CELLS[column]], text));
      group.runs.forEach((run, place) => {
        const line = byId(`${job.id}-run-${number}-${place}`).cells;
        const [first, held] = [job.first[at][run.number], job.held[at][run.number]];
        line[5].textContent = first < 0 ? run.missed[clock] : run.at[clock][first];
        line[6].textContent = first < 0 ? "" : held < 0 ? "no" : `from ${run.at[clock][held]}`;
      });
    });
    byId(`${job.id}-clock`).textContent = clock === "train_s" ? "training time" : "wall time";
    byId(`${job.id}-caption-target`).textContent = `${job.metric_label} ${targetText(job.grid[at])}`;
  }
  function update(state) {
    const { job, at, x } = state;
    fillTables(state);
    const output = byId(`${job.id}-output`);
    output.textContent = `${job.metric_label} ${targetText(job.grid[at])}`;
    byId(`${job.id}-target`).setAttribute("aria-valuetext", output.textContent);
    const look = theme();
    drawCurves(state, look);
    drawTargets(state, look);
    byId(`${job.id}-finding`).textContent = job.findings[x][at];
    const axis = job.axes.find((one) => one.key === x);
    byId(`${job.id}-axis-words`).textContent = axis.title;
    const curves = byId(`${job.id}-curves`);
    curves.setAttribute("aria-label", byId(`${job.id}-description`).textContent.replace(/\s+/g, " ").trim());
  }

  // ---- controls ----
  for (const state of states) {
    const { job } = state;
    const slider = byId(`${job.id}-target`);
    let waiting = false;
    const move = (value) => {
      state.at = Number(value);
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; update(state); });
    };
    slider.addEventListener("input", () => move(slider.value));
    slider.addEventListener("change", () => {
      byId("status").textContent = job.findings[state.x][state.at];
    });
    byId(`${job.id}-reset`).addEventListener("click", () => { slider.value = job.start; move(job.start); });
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
