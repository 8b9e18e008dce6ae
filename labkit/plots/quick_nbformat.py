"""Import nbformat, which plotly needs in a notebook, two seconds faster."""

import contextlib
import sys

_GRAMMAR = "rfc3987_syntax"
"""Package that jsonschema, which nbformat imports, uses if it is installed. Importing it compiles a grammar of
international web addresses, which takes two seconds of a core; notebooks do not need it."""


def import_nbformat() -> None:
    """Import nbformat without that grammar, if it is installed and not yet imported."""
    if "jsonschema" in sys.modules or _GRAMMAR in sys.modules:
        return
    sys.modules[_GRAMMAR] = None  # ty: ignore[invalid-assignment]  # None makes its import fail
    try:
        with contextlib.suppress(ImportError):
            import nbformat  # noqa: F401
    finally:
        del sys.modules[_GRAMMAR]
