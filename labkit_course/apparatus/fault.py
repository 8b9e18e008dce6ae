"""The ways in which a client of the fault lab fails, and what NVIDIA documents of them (`documented.toml`)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Fault:
    """One way to fail."""

    name: str
    words: str
    """What the client does"""
    hangs: bool = False
    """Whether it stays, deaf to SIGTERM, until it is killed"""
    gpu_only: bool = False


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("exception", "raises an exception that nobody catches"),
        Fault("segfault", "reads memory that is not there, so that the kernel ends its process by SIGSEGV"),
        Fault("leak", "allocates until its cap"),
        Fault("spin", "computes something else for ever: no step, and a core kept busy", hangs=True),
        Fault("hold", "sleeps for ever: no step, and all of its memory kept", hangs=True),
        Fault("kill", "is killed from outside by SIGKILL"),
        Fault("gpu-assert", "fails an assertion in a kernel: an index that is out of its tensor", gpu_only=True),
        Fault("gpu-access", "writes from a kernel where no memory is: an illegal memory access", gpu_only=True),
    )
}


def documented_behaviour() -> pd.DataFrame:
    """What is documented to become of the neighbours, in our words.

    Columns mode; fault, as `FAULTS` names it; gpus, for which it holds; neighbours, what becomes of them in few words;
    documented, in a sentence; source, section and url; provenance, "documented, not run here".
    """
    import pandas as pd  # not where a client starts, whose start is measured

    content = tomllib.loads(files(__package__).joinpath("documented.toml").read_text(encoding="utf-8"))
    rows = [row | content["sources"][row["source"]] for row in content["rows"]]
    return pd.DataFrame(rows).assign(provenance="documented, not run here")
