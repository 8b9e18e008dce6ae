"""0 when it worked, 2 for what the user can mend, 1 for our own mistakes, 130 for Ctrl-C."""

import errno
import warnings

import pytest
from made_up import write_run

from labkit.cli import main


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (OSError(errno.EACCES, "refused", "some/file"), 2, "labkit: some/file: the system refused"),
        (OSError(errno.ENOSPC, "refused", "some/file"), 2, "labkit: some/file: the system refused"),
        (KeyError("oops"), 1, "bug in labkit"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_the_users_mistakes_ours_and_ctrl_c_have_a_status_each(monkeypatch, capsys, error, status, words):
    def fail(args):
        raise error

    monkeypatch.setattr("labkit.cli.tiers.run_tiers", fail)
    assert main(["tiers"]) == status
    said = capsys.readouterr().err
    assert words in said and ("Traceback" in said) == (status == 1)


def test_a_warning_is_one_line_for_people(monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr("labkit.cli.tiers.run_tiers", lambda args: warnings.warn("look here", stacklevel=1) or 0)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["tiers"]) == 0
    assert capsys.readouterr().err.endswith("labkit: look here\n")


def test_a_file_where_a_folder_should_be_is_the_users_to_mend(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    write_run(tmp_path / "runs", [0.6, 0.8])
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "file" / "x.html")]) == 2
    (tmp_path / "folder").mkdir()
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "folder")]) == 2
    assert not list(tmp_path.glob(".*.part"))
    assert main(["runs", "list", "--runs-dir", str(tmp_path / "file")]) == 2
    assert "is a file, not a folder" in capsys.readouterr().err
