"""JupyterLab as students see it: `make lab` and Binder read this; a hub's administrator can copy the folder."""

from pathlib import Path

c = get_config()  # noqa: F821  # ty: ignore[unresolved-reference]  # Jupyter defines it
c.ContentsManager.hide_globs = ["solutions", "__pycache__", "*.pyc", "*.pyo", "*~", ".DS_Store"]
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
c.LabApp.news_url = None
c.LabApp.custom_css = True
c.ServerApp.allow_root = True
# the folder of custom.css, for which JupyterLab has no setting of its own
c.ServerApp.tornado_settings = {"static_custom_path": [str(Path(__file__).parent / "custom")]}
