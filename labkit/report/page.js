/* The report page: draws what labkit.report.page computed for the place of the slider, the axis and the theme.
   The live page gives its sections later and again, with window.labkitReport.show. */
"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const root = document.documentElement;
  const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 720px)");
  const byId = (id) => document.getElementById(id);
  const states = new Map(); // by the id of their section
  const isDark = () => (root.dataset.theme ?? (darkScheme.matches ? "dark" : "light")) === "dark";

  // Figures are made for a light page; on a dark one each colour has another in its place.
  function themed(figure) {
    let text = JSON.stringify(figure);
    if (isDark()) for (const [light, dark] of Object.entries(report.dark)) text = text.replaceAll(light, dark);
    const { data, layout } = JSON.parse(text);
    layout.autosize = true;
    if (narrow.matches) { // the legend stacks
      layout.height = 340 + 22 * new Set(data.map((trace) => trace.meta.group)).size;
      layout.margin = { l: 48, r: 44, t: 40, b: 48 };
    }
    return { data, layout };
  }
  function moved(layout, state, line) {
    // zoom and hidden series survive the slider, not a change of axis
    return { ...layout, uirevision: state.axis.key, shapes: [{ ...layout.shapes[0], ...line }] };
  }
  function drawCurves(state) {
    const { job, at, axis } = state;
    const { data, layout } = state.curves;
    const target = job.grid[at];
    const runs = Object.fromEntries(data.filter(({ meta }) => meta.kind === "run").map((run) => [run.meta.group, run]));
    const traces = data.map((trace) => {
      const { kind, group, feet } = trace.meta;
      if (kind === "reached") {
        const points = job.first[at][group].filter((point) => point >= 0);
        const placed = (column) => points.map((point) => runs[group][column][point]);
        return { ...trace, x: placed("x"), y: placed("y") };
      }
      if (kind !== "median") return trace;
      const [median, text] = axis.medians[at][group];
      if (median === null) return { ...trace, x: [], y: [], text: [] };
      const side = median > 0.73 * layout.xaxis.range[1] ? "left" : "right";
      return { ...trace, x: [median, median, median], y: [target, ...feet], text: ["", ` ${text} `, ""],
        textposition: `middle ${side}` };
    });
    const mark = { ...layout.annotations[0], text: `target<br>${job.labels[at].split(" ").pop()}` };
    mark.y = layout.yaxis.type === "log" ? Math.log10(target) : target;
    const changed = { ...moved(layout, state, { y0: target, y1: target }), annotations: [mark] };
    window.Plotly.react(byId(`${job.id}-curves`), traces, changed, report.config);
  }
  function drawTargets(state) {
    const { job, at } = state;
    const { data, layout } = state.targets;
    const changed = moved(layout, state, { x0: job.grid[at], x1: job.grid[at] });
    window.Plotly.react(byId(`${job.id}-targets`), data, changed, report.config);
  }
  function fillTables({ job, at, axis }) {
    const clock = axis.key === "train_s" ? "train_s" : "wall_s";
    job.cells[clock][at].forEach((row, number) => {
      const { cells } = byId(`${job.id}-row-${number}`);
      row.forEach((html, column) => { cells[report.columns[column]].innerHTML = html; }); // of numbers, by Python
    });
    job.first[at].forEach((points, group) => points.forEach((point, run) => {
      const line = byId(`${job.id}-run-${group}-${run}`).cells;
      const held = job.held[at][group][run];
      const when = job.when[clock][group];
      line[5].textContent = point < 0 ? job.missed[clock][group][run] : when[point];
      line[6].textContent = point < 0 ? "" : held < 0 ? "no" : `from ${when[held]}`;
    }));
    byId(`${job.id}-clock`).textContent = clock === "train_s" ? "training time" : "wall time";
    byId(`${job.id}-goal`).textContent = job.labels[at];
  }
  function update(state) {
    const { job, at, axis } = state;
    fillTables(state);
    byId(`${job.id}-output`).textContent = job.labels[at];
    byId(`${job.id}-target`).setAttribute("aria-valuetext", job.labels[at]);
    drawCurves(state);
    drawTargets(state);
    byId(`${job.id}-finding`).textContent = axis.findings[at];
    byId(`${job.id}-curves`).setAttribute("aria-label", `${axis.description} ${axis.findings[at]}`);
    byId(`${job.id}-targets`).setAttribute("aria-label", axis.targets_description);
  }
  function redraw(state) {
    state.curves = themed(state.axis.curves);
    state.targets = themed(state.axis.targets);
    update(state);
  }

  // Attaches a section whose elements are on the page; target and axis stay those of the section that it replaces.
  function show(job) {
    const before = states.get(job.id);
    states.delete(job.id);
    if (!job.axes.length) return;
    const state = { job, at: job.start, axis: job.axes[0] };
    if (before) {
      const target = before.job.grid[before.at];
      const distance = (value) => Math.abs(value - target);
      if (before.at !== before.job.start) job.grid.forEach((value, at) => { if (distance(value) < distance(job.grid[state.at])) state.at = at; });
      state.axis = job.axes.find(({ key }) => key === before.axis.key) ?? state.axis;
    }
    states.set(job.id, state);
    const slider = byId(`${job.id}-target`);
    slider.value = state.at;
    let waiting = false;
    const move = (place) => {
      state.at = Number(place);
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; update(state); });
    };
    slider.addEventListener("input", () => move(slider.value));
    slider.addEventListener("change", () => { byId("status").textContent = state.axis.findings[state.at]; });
    byId(`${job.id}-reset`).addEventListener("click", () => { slider.value = job.start; move(job.start); });
    for (const choice of document.querySelectorAll(`input[name="${job.id}-x"]`)) {
      choice.checked = choice.value === state.axis.key;
      choice.addEventListener("change", () => {
        state.axis = job.axes.find(({ key }) => key === choice.value);
        redraw(state);
      });
    }
    redraw(state);
  }
  function redrawAll() {
    byId("theme").textContent = isDark() ? "Light background" : "Dark background";
    states.forEach(redraw);
    document.dispatchEvent(new Event("labkit-theme"));
  }
  byId("theme").addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; redrawAll(); });
  darkScheme.addEventListener("change", redrawAll);
  narrow.addEventListener("change", redrawAll);
  window.labkitReport = { show, themed, isDark };
  redrawAll();
  report.jobs.forEach(show);
  let before;
  window.addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; redrawAll(); });
  window.addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    redrawAll();
  });
})();
