"""A hook of mkdocs: links to files outside docs/ open the repository; a link to a missing file is an error."""

import re
from pathlib import Path

from mkdocs.exceptions import PluginError

from labkit.project import BRANCH, REPOSITORY

ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, *, page, **_) -> str:
    def outside(match: re.Match) -> str:
        target, _, anchor = match[1].partition("#")
        path = (ROOT / "docs" / page.file.src_uri).parent.joinpath(target).resolve()
        if not path.exists():
            raise PluginError(f"docs/{page.file.src_uri} links to {target}, which does not exist")
        kind = "tree" if path.is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/{BRANCH}/{path.relative_to(ROOT).as_posix()}{'#' + anchor if anchor else ''})"

    return re.sub(r"\]\((\.\./[^)\s]+)\)", outside, markdown)
