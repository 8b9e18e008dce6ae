"""A figure as a PNG, drawn by the browser that is here."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import plotly.graph_objects as go

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def save_picture(fig: go.Figure, path: Path) -> None:
    """Write `path`, or say that there is no browser to draw it with."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"{path.name} not drawn: none of {', '.join(BROWSERS)} is on PATH")
        return
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "figure.html"
        fig.write_html(page, include_plotlyjs=True, config={"displayModeBar": False})
        size = f"{fig.layout.width + 20},{fig.layout.height + 20}"
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync",
                   f"--user-data-dir={folder}/profile", f"--window-size={size}", "--virtual-time-budget=5000",
                   f"--screenshot={path}", page.as_uri()]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=60)
