"""Names of jobs that their plan does not name, and of jobs together."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import Any

from labkit.collocation.plan.planned_job import PlannedJob

LONGEST = 52
"""Characters of a name before its number, of the 60 that a name may have"""


def safe_name(text: str) -> str:
    """A text as the name of a job, and so of a file.

    >>> safe_name("dlrm:tour"), safe_name("MPS shared gpu 1"), safe_name("../..")
    ('dlrm-tour', 'MPS-shared-gpu-1', 'job')
    """
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.+")[:LONGEST] or "job"


def numbered(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """The same names, with numbers where several are equal or others have them.

    >>> numbered(["dlrm-tour", "dlrm-tour", "speech-tour"])
    ['dlrm-tour-1', 'dlrm-tour-2', 'speech-tour']
    """
    once = {name for name, times in Counter(names).items() if times == 1} - {*taken}
    used, found = {*taken, *once}, []
    for name in names:
        free = name if name in once else next(new for n in count(1) if (new := f"{name}-{n}") not in used)
        used.add(free)
        found.append(free)
    return found


def mix_words(labels: Iterable[str]) -> str:
    """Jobs that run together in words, most copies first.

    >>> mix_words(["speech:tour", "dlrm:tour", "dlrm:tour"])
    '2 × dlrm:tour + speech:tour'
    """
    counts = sorted(Counter(labels).items(), key=lambda item: (-item[1], item[0]))
    return " + ".join(label if times == 1 else f"{times} × {label}" for label, times in counts)


def told_of_mix(mode: str, jobs: Sequence[PlannedJob], words: str | None = None) -> dict[str, Any]:
    """What the record of a run says of the jobs that it shared a device with, itself included.

    Args:
        mode: of the sharing.
        jobs: all of them.
        words: for them; None takes `mix_words`.
    """
    likeness = repr(sorted(map(repr, (job.likeness for job in jobs))))
    return {
        "mode": mode,
        "jobs": mix_words(job.label for job in jobs) if words is None else words,
        "mix": hashlib.blake2s(likeness.encode(), digest_size=3).hexdigest(),
    }
