"""Imports nbformat, which plotly needs in a notebook, two seconds sooner."""

from __future__ import annotations

import contextlib
import sys

_GRAMMAR = "rfc3987_syntax"
"""jsonschema, which nbformat imports, tries this package, which compiles a grammar of internationalised web addresses
when it is imported: two seconds of a core. No notebook is checked against it."""


def import_nbformat() -> None:
    """Import nbformat, where it is installed and not imported yet, without that grammar."""
    if "jsonschema" in sys.modules or _GRAMMAR in sys.modules:
        return
    sys.modules[_GRAMMAR] = None
    try:
        with contextlib.suppress(ImportError):
            import nbformat  # noqa: F401
    finally:
        del sys.modules[_GRAMMAR]
