"""Names of jobs that their plan does not name, and of jobs together."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
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
    """The same names, with numbers where several are equal.

    Args:
        names: safe ones.
        taken: names that others have.

    >>> numbered(["dlrm-tour", "dlrm-tour", "speech-tour"])
    ['dlrm-tour-1', 'dlrm-tour-2', 'speech-tour']
    >>> numbered(["a", "a", "a-1"])
    ['a-2', 'a-3', 'a-1']
    """
    count = Counter(names)
    used = {*taken}
    # a name that stands alone keeps it, and the numbers go round it
    single = {name for name in names if count[name] == 1 and name not in used}
    used |= single
    last: Counter[str] = Counter()
    found = []
    for name in names:
        if name in single:
            found.append(name)
            continue
        last[name] += 1
        while f"{name}-{last[name]}" in used:
            last[name] += 1
        found.append(f"{name}-{last[name]}")
        used.add(found[-1])
    return found


def mix_words(labels: Iterable[str]) -> str:
    """Jobs that run together in words, most copies first.

    >>> mix_words(["speech:tour", "dlrm:tour", "dlrm:tour"])
    '2 × dlrm:tour + speech:tour'
    """
    counts = sorted(Counter(labels).items(), key=lambda item: (-item[1], item[0]))
    return " + ".join(label if count == 1 else f"{count} × {label}" for label, count in counts)


def told_of_mix(mode: str, jobs: Sequence[PlannedJob], words: str | None = None) -> dict[str, Any]:
    """What the record of a run says of the jobs that it shared a device with.

    Args:
        mode: of the sharing.
        jobs: all of them, this one included.
        words: for them; None takes `mix_words`.
    """
    likeness = repr(sorted(map(repr, (job.likeness for job in jobs))))
    return {
        "mode": mode,
        "jobs": mix_words(job.label for job in jobs) if words is None else words,
        "mix": hashlib.blake2s(likeness.encode(), digest_size=3).hexdigest(),
    }
