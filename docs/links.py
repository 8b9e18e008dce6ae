"""A hook of mkdocs: a link to a file outside docs/ opens the repository, or names the file while that has no address.

A link to a missing file is an error.
"""

import re
from pathlib import Path

from mkdocs.exceptions import PluginError

from labkit.project import BRANCH, REPOSITORY

ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, *, page, **_) -> str:
    def outside(match: re.Match) -> str:
        target, _, anchor = match["target"].partition("#")
        path = (ROOT / "docs" / page.file.src_uri).parent.joinpath(target).resolve()
        if not path.exists():
            raise PluginError(f"docs/{page.file.src_uri} links to {target}, which does not exist")
        name = path.relative_to(ROOT).as_posix()
        if not REPOSITORY:
            return match["text"] if match["text"].strip("`") in (name, path.name) else f"{match['text']} (`{name}`)"
        kind = "tree" if path.is_dir() else "blob"
        return f"[{match['text']}]({REPOSITORY}/{kind}/{BRANCH}/{name}{'#' + anchor if anchor else ''})"

    return re.sub(r"\[(?P<text>[^\]]*)\]\((?P<target>\.\./[^)\s]+)\)", outside, markdown)
