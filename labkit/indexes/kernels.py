"""Kernels: functions over arrays that numba compiles, and that the replay runs as plain Python to follow each access.

An index is a NamedTuple of arrays. They are pools: a kernel that finds its pool full changes nothing and returns FULL.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from labkit import compiled

KEY_END = 2**62
"""Keys are whole numbers from 0 up to this one, so that the difference of two fits in 64 bits"""
NO_KEY = 2**63 - 1
"""What stands in slots behind the last key"""
MISSING = -(2**63)
"""What `get` returns for a key that is not there"""
FULL = -1
"""What `put` returns if its pool is full; else 1 for a new key and 0 for a new value of a key"""
GET, PUT, SCAN = range(3)
"""Kinds of requests"""


def kernel(function: Callable[..., Any], **options: Any) -> Any:
    """Let numba compile a function at its first call; without numba it stays plain Python."""
    vars(function)["is_kernel"] = True
    if compiled.why_not_compiled():
        return function
    import numba

    made: Any = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    # numba looks only at a function's own file to see if what it has compiled is out of date
    made._cache._cache_file._source_stamp = _sources()
    return made


def inlined(function: Callable[..., Any]) -> Any:
    """A kernel that becomes part of those that call it.

    A call hands over each array of an index as seven words, and counts references to some of them with atomic
    instructions, which a CPU does not run ahead of: that takes as long as a whole read.
    """
    return kernel(function, forceinline=True)


@functools.cache
def _sources() -> str:
    """A fingerprint of all files of this room."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def rebound(function: Any, scope: dict[str, Any]) -> Any:
    """The same kernel for another index: the names that it calls are those of `scope`, the globals of a module."""
    python = getattr(function, "py_func", function)
    return kernel(FunctionType(python.__code__, python.__globals__ | scope, python.__name__))


def plain(function: Any, swaps: Mapping[str, Callable[..., Any]] = MappingProxyType({})) -> Callable[..., Any]:
    """A kernel as plain Python, with all kernels that it calls; `swaps` are functions to call instead, by name."""
    scopes: dict[int, dict[str, Any]] = {}

    def in_plain_scope(function: Any) -> Callable[..., Any]:
        python = getattr(function, "py_func", function)
        own = python.__globals__
        if id(own) not in scopes:
            scope = scopes[id(own)] = dict(own)
            for name, value in own.items():
                if getattr(getattr(value, "py_func", value), "is_kernel", False):
                    scope[name] = swaps.get(name) or in_plain_scope(value)
        return FunctionType(python.__code__, scopes[id(own)], python.__name__, python.__defaults__)

    return in_plain_scope(function)


Arrays = TypeVar("Arrays", bound=NamedTuple)


def enlarged(arrays: Arrays) -> Arrays:
    """The same index with pools of twice the size."""
    pools = {name: array for name, array in arrays._asdict().items() if name not in ("meta", "work")}
    return arrays._replace(**{name: np.concatenate([array, np.zeros_like(array)]) for name, array in pools.items()})
