"""The list of lines that tests/mutations.py breaks is true of the code of today."""

from mutations import REPOSITORY, load_mutations


def test_each_line_stands_once_in_its_file():
    for each in load_mutations():
        assert (REPOSITORY / each["file"]).read_text(encoding="utf-8").count(each["line"]) == 1, each
