"""0 when it worked, 2 for what the user can mend, 1 for our own mistakes, 130 for Ctrl-C."""

import errno
import gzip
import json
import warnings
from pathlib import Path

import pytest

from labkit.cli import main
from labkit.runs import read_run


def ends_with(monkeypatch, error: BaseException) -> int:
    def fail(args):
        raise error

    monkeypatch.setattr("labkit.cli.tiers.run_tiers", fail)
    return main(["tiers"])


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EROFS, errno.ENOENT])
def test_what_the_system_refuses_is_no_bug_of_ours(monkeypatch, capsys, number):
    assert ends_with(monkeypatch, OSError(number, "refused", "some/file")) == 2
    said = capsys.readouterr().err
    assert said.startswith("labkit: some/file: the system refused")
    assert "Traceback" not in said


def test_a_bug_of_ours_says_so_with_its_traceback(monkeypatch, capsys):
    assert ends_with(monkeypatch, KeyError("oops")) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said and "bug in labkit" in said


def test_ctrl_c_is_130(monkeypatch):
    assert ends_with(monkeypatch, KeyboardInterrupt()) == 130


def test_a_warning_is_one_line_for_people(monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr("labkit.cli.tiers.run_tiers", lambda args: warnings.warn("look here", stacklevel=1) or 0)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["tiers"]) == 0
    assert capsys.readouterr().err.endswith("labkit: look here\n")


def test_a_file_where_a_folder_should_be_is_the_users_to_mend(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    main(["train", "dlrm", "--data", "synthetic-small", "--max-epochs", "1", "--runs-dir", str(tmp_path / "runs")])
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "file" / "x.html")]) == 2
    (tmp_path / "folder").mkdir()
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "folder")]) == 2
    assert not list(tmp_path.glob(".*.part"))
    assert main(["runs", "list", "--runs-dir", str(tmp_path / "file")]) == 2
    assert "this is a file" in capsys.readouterr().err


def test_a_listing_of_which_nothing_can_be_read_is_no_empty_one(tmp_path, capsys):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "run.json").write_text('{"schema_version": 99}')
    assert main(["runs", "list", "--runs-dir", str(tmp_path)]) == 2
    streams = capsys.readouterr()
    assert "upgrade labkit" in streams.err and "no runs in" not in streams.out


def test_a_cut_gzip_of_criteo_rows_is_named_as_cut(tmp_path, capsys):
    row = "\t".join(["1", *["5"] * 13, *["68fd1e64"] * 26]) + "\n"
    lines = "".join(row.replace("5", str(number)) for number in range(2000))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(lines.encode())[:-500])
    assert main(["train", "dlrm", "--data", str(tmp_path / "cut.gz"), "--runs-dir", str(tmp_path / "runs")]) == 2
    assert "gzip file is cut short" in capsys.readouterr().err


def test_skipped_rows_are_told_and_a_full_result_is_one_json_line(tmp_path, capsys):
    row = "\t".join(["{}", *["5"] * 13, *["68fd1e64"] * 26]) + "\n"
    (tmp_path / "train.txt").write_text("".join(row.format(number % 2) for number in range(400)) + "1\tshort\n")
    command = ["train", "dlrm", "--data", str(tmp_path / "train.txt"), "--runs-dir", str(tmp_path / "runs"), "--json"]
    assert main([*command, "--max-epochs", "1"]) == 2
    assert "line 401" in capsys.readouterr().err
    assert main([*command, "--max-epochs", "1", "--on-bad-row", "skip"]) == 0
    streams = capsys.readouterr()
    assert "ad rows skipped: 1" in streams.err
    answer = json.loads(streams.out.splitlines()[-1])
    assert list(answer) == ["run", "folder", "status", "result"]


def test_a_full_disk_stops_a_run_that_can_go_on(tmp_path, capsys, monkeypatch):
    import torch

    real = torch.save
    command = ["train", "dlrm", "--data", "synthetic-small", "--runs-dir", str(tmp_path), "--max-epochs", "1"]

    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", no_space)
    assert main(command) == 2
    assert "disk is full" in capsys.readouterr().err
    (folder,) = Path(tmp_path).iterdir()
    assert read_run(folder).status == "stopped"
    monkeypatch.setattr(torch, "save", real)
    assert main(["train", "dlrm", "--resume", folder.name, "--runs-dir", str(tmp_path)]) == 0
    assert read_run(folder).status == "done"
