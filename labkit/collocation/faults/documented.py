"""What NVIDIA documents of faults under each way to share a GPU (`documented.toml`), for who cannot run them."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pandas as pd

COLUMNS = ["mode", "fault", "gpus", "neighbours", "documented", "source", "section", "url", "provenance"]


def documented_behaviour() -> pd.DataFrame:
    """What is documented to become of the neighbours, in our words.

    Returns:
        mode; fault, as `FAULTS` names it; gpus, for which it holds; neighbours, what becomes of them in a few words;
        documented, in a sentence; source, section and url; provenance, "documented, not run here".
    """
    content = tomllib.loads(files(__package__).joinpath("documented.toml").read_text(encoding="utf-8"))
    rows = [row | content["sources"][row["source"]] for row in content["rows"]]
    return pd.DataFrame(rows).assign(provenance="documented, not run here")[COLUMNS]
