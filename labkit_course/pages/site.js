/* The course site: the theme, and figures that follow it. */
"use strict";
(() => {
  const { themes, dark } = window.labkitSite;
  const root = document.documentElement;
  const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");

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

  applyTheme();
})();
