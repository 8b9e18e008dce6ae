"""The pages of docs/ and the API reference build, and no link in them is broken."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_docs_build_without_a_broken_link(tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'id="labkit.Run.evaluate"' in (tmp_path / "api/run/index.html").read_text(encoding="utf-8")
