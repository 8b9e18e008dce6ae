"""The list of lines that tests/mutations.py breaks is true of the code of today."""

from __future__ import annotations

import pytest
from mutations import REPOSITORY, load_mutations


@pytest.mark.parametrize("mutation", load_mutations(), ids=lambda mutation: f"{mutation['file']}-{mutation['line']}")
def test_each_line_stands_once_in_its_file(mutation):
    assert (REPOSITORY / mutation["file"]).read_text(encoding="utf-8").count(mutation["line"]) == 1
