"""What py-spy writes, as a frame."""

import pytest

from labkit.errors import UserError
from labkit.profiling.tools.py_spy import python_functions

STACKS = """\
<module> (cli.py:8);<module> (/w/train.py:8);main (/w/train.py:7);fib (/w/train.py:3) 2
<module> (cli.py:8);<module> (/w/train.py:8);main (/w/train.py:7);fib (/w/train.py:3);fib (/w/train.py:2) 5
<module> (cli.py:8);<module> (/w/train.py:8);main (/w/train.py:7) 1
<module> (cli.py:8);<module> (/w/train.py:8);load (my data (1).py:40);read (lib.so) 2
_bootstrap (threading.py:9);refresh (live.py:7) 4
"""


def functions(folder, text):
    path = folder / "py-spy.txt"
    path.write_text(text)
    return python_functions(path, "/w/train.py")


def test_stacks_through_the_script_become_functions_each_counted_once_a_sample(tmp_path):
    table = functions(tmp_path, STACKS).set_index("function")
    assert table.index[0] == "fib" and "refresh" not in table.index
    assert table.loc["fib", ["samples", "self_samples", "share", "line"]].tolist() == [7, 7, 0.7, 2]
    assert table.loc["main", ["samples", "self_samples", "with_callees"]].tolist() == [8, 1, 0.8]
    assert table.loc["load", "file"] == "my data (1).py" and table["line"].isna()[["load", "read"]].all()
    assert table["self_samples"].sum() == 10


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (STACKS[:130], r"py-spy.txt, line 2: this line has no number of samples at its end. .*profile again"),
        ("main (other.py:7) 3\n", "py-spy took no sample within the steps. Let them go on for longer"),
        ("", "py-spy took no sample within the steps"),
    ],
)
def test_damaged_and_missing_samples_are_told(tmp_path, text, words):
    with pytest.raises(UserError, match=words):
        functions(tmp_path, text)
