#!/usr/bin/env bash
# nbconvert's sanitize_html shows the tags of headings, paragraphs and table heads as text.
# Guess: it removes scripts, and leaves what Markdown itself makes.
# Seen: "# Title" becomes &lt;h1 …&gt;Title on the page; <td> and <strong> stay, for `clean_html` allows these and few others.
# Source: https://github.com/jupyter/nbconvert/blob/v7.17.2/nbconvert/filters/strings.py
# labkit: the site of the course cleans outputs with nh3 instead (labkit_course/site.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check nbconvert==7.17.2 nbformat==5.11.1
cd "$folder"
venv/bin/python - <<'PYTHON'
import nbconvert
import nbformat

text = "# Title\n\nSome **bold** words.\n\n|a|b|\n|-|-|\n|1|2|\n"
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
shown = {}
for sanitize in (False, True):
    page, _ = nbconvert.HTMLExporter(sanitize_html=sanitize).from_notebook_node(notebook)
    body = page[page.index("<body") :]
    shown[sanitize] = [tag for tag in ("h1", "p", "th", "td", "strong") if f"&lt;{tag}" in body]
print(f"nbconvert {nbconvert.__version__}: tags shown as text, by sanitize_html: {shown}")
raise SystemExit(shown != {False: [], True: ["h1", "p", "th"]})
PYTHON
