/* The course site: figures that follow the theme, the theme itself, and a search over all sections.
   Text from notebooks enters the results through textContent only. */
"use strict";
(() => {
  const { search, themes, dark } = window.labkitSite;
  const root = document.documentElement;
  const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const query = document.getElementById("query");
  const found = document.getElementById("found");
  const count = document.getElementById("count");
  const MOST_RESULTS = 12;

  // ---- theme ----
  const isDark = () => (root.dataset.theme ?? (darkScheme.matches ? "dark" : "light")) === "dark";
  function applyTheme() {
    button.setAttribute("aria-pressed", String(isDark()));
    for (const figure of document.querySelectorAll("figure.plot")) drawFigure(figure);
  }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("labkit-theme", root.dataset.theme); } catch { /* a file may not store */ }
    applyTheme();
  });
  darkScheme.addEventListener("change", applyTheme);

  // ---- figures ----
  function drawFigure(figure) {
    let text = figure.querySelector("script").textContent;
    // what a figure colours itself, its template does not recolour: lines of targets, labels, series
    if (isDark()) for (const [light, other] of Object.entries(dark)) text = text.replaceAll(light, other);
    const saved = JSON.parse(text);
    let target = figure.querySelector(".canvas");
    if (!target) {
      target = document.createElement("div");
      target.className = "canvas";
      figure.append(target);
    }
    const layout = { ...saved.layout, template: themes[isDark() ? "dark" : "light"], autosize: true };
    delete layout.width;
    Plotly.react(target, saved.data, layout, { ...saved.config, responsive: true });
  }

  // ---- search ----
  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
  function matches(text) {
    const wanted = words(text);
    if (!wanted.length) return [];
    const scored = [];
    for (const entry of search) {
      const title = `${entry.title} ${entry.of}`.toLowerCase();
      const body = entry.text.toLowerCase();
      if (!wanted.every((word) => title.includes(word) || body.includes(word))) continue;
      scored.push({ entry, score: wanted.filter((word) => title.includes(word)).length });
    }
    return scored.sort((a, b) => b.score - a.score).map((each) => each.entry);
  }
  function excerpt(entry, text) {
    const at = Math.max(0, ...words(text).map((word) => entry.text.toLowerCase().indexOf(word)));
    const start = Math.max(0, at - 40);
    return (start ? "… " : "") + entry.text.slice(start, start + 140) + (entry.text.length > start + 140 ? " …" : "");
  }
  function showResults() {
    const hits = matches(query.value);
    found.replaceChildren();
    const asked = words(query.value).length > 0;
    found.hidden = !asked;
    count.textContent = asked ? `${hits.length} sections found` : "";
    if (asked && !hits.length) {
      const nothing = document.createElement("p");
      nothing.textContent = "Nothing found. Try fewer words.";
      found.append(nothing);
      return;
    }
    const list = document.createElement("ul");
    for (const entry of hits.slice(0, MOST_RESULTS)) {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = `${entry.page}#${entry.anchor}`;
      const title = document.createElement("strong");
      title.textContent = entry.title;
      const of = document.createElement("span");
      of.textContent = entry.of;
      const text = document.createElement("span");
      text.textContent = excerpt(entry, query.value);
      link.append(title, of, text);
      item.append(link);
      list.append(item);
    }
    found.append(list);
  }
  query.addEventListener("input", showResults);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !found.hidden) {
      query.value = "";
      showResults();
      query.focus();
    }
    if (event.key === "/" && document.activeElement !== query && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      query.focus();
    }
  });

  applyTheme();
})();
