"""What a run folder does not keep word for word, and how a resume goes on without it."""

import argparse
import json
import sys
from pathlib import Path

import pytest
from made_up import new_run

from labkit.cli.run import resumed_command
from labkit.errors import UserError
from labkit.runs import RunWriter
from labkit.runs.safe_files import given_again, shielded

HOME = str(Path.home())
ARGUMENTS = ["--token", "s3cret-words", "--api-key=s3cret-words", "--data", f"{HOME}/clicks", "--pad-token", "0"]
SHIELDED = ["--token", "***", "--api-key=***", "--data", "~/clicks", "--pad-token", "0"]


def written(runs_dir: Path) -> RunWriter:
    config = {"job": "own", "script": f"{HOME}/train.py", "arguments": ARGUMENTS, "train": {"hf_token": "s3cret-words"}}
    writer = new_run(runs_dir, "own", config=config, budget={})
    writer.event("fault", kind="error", what=f"no access to {HOME}/x by https://me:pw@host/ with s3cret-words")
    writer.finish("stopped", {"reason": f"train.py --token s3cret-words failed in {HOME}"})
    return writer


def text_of(folder: Path) -> str:
    return (folder / "run.json").read_text() + (folder / "events.jsonl").read_text()


@pytest.fixture
def command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", *ARGUMENTS])


def test_home_folders_and_secrets_are_in_no_record(tmp_path, command_line, monkeypatch):
    writer = written(tmp_path)
    text = text_of(writer.folder)
    assert "s3cret-words" not in text and HOME not in text and "me:pw" not in text
    record = json.loads((writer.folder / "run.json").read_text())
    assert record["config"]["arguments"] == record["argv"][1:] == SHIELDED
    assert record["config"]["script"] == "~/train.py" and record["config"]["train"] == {"hf_token": "***"}
    monkeypatch.setenv("LABKIT_VERBATIM", "1")  # who asks for it gets every word
    text = text_of(written(tmp_path).folder)
    assert HOME in text and "--api-key=s3cret-words" in text


def test_a_secret_of_the_environment_is_hidden_in_messages(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
    monkeypatch.setenv("SECRETS", "/run/secrets")
    reason = "401 for hf_abcdefgh, key=5, hf_abcdefgh2, /run/secrets/x"
    assert shielded({"reason": reason}) == {"reason": "401 for ***, key=5, hf_abcdefgh2, /run/secrets/x"}


def test_a_resume_has_the_paths_of_now_and_asks_for_the_secrets(tmp_path, command_line, monkeypatch):
    folder = written(tmp_path).folder
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "latest.pt").touch()
    (tmp_path / "train.py").touch()
    monkeypatch.setattr("labkit.runs.safe_files._homes", lambda: (str(tmp_path),))
    args = argparse.Namespace(resume=str(folder), runs_dir=tmp_path, budget=None, sample_hz=None, no_wait=False)
    with pytest.raises(UserError, match=r"the value of --token, --api-key looks like a secret.* -- --token VALUE"):
        resumed_command(args, [])
    given = ["--token", "new", "--api-key=new"]
    command = resumed_command(args, given)
    assert command.script == str(tmp_path / "train.py")
    assert list(command.arguments) == ["--data", f"{tmp_path}/clicks", "--pad-token", "0", *given]
    assert given_again(["--lr", "0.1", "a~b"], [], "run") == ["--lr", "0.1", "a~b"]
