"""What scripts give as settings and numbers is recorded as JSON and Python's numbers, or refused by name."""

import argparse
import dataclasses
import datetime
import enum
import json
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch

from labkit.errors import UserError
from labkit.runs import read_run
from labkit.tracking.goal import Target
from labkit.tracking.values import real, settings, whole


class Colour(enum.Enum):
    RED = 1


class Flags(enum.IntFlag):
    A, B = 1, 2


class Unreadable(dict):
    def __getitem__(self, name):
        raise LookupError(f"interpolation key {name!r} not found")  # as OmegaConf's containers do


@dataclasses.dataclass
class Optim:
    lr: object
    betas: tuple = (0.9, 0.999)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3), (np.float32(0.5), 0.5), (np.bool_(True), True), (torch.tensor(3), 3), (Decimal("0.1"), 0.1),
        (Fraction(1, 4), 0.25), (float("nan"), "nan"), (2**70, str(2**70)), (np.arange(2), [0, 1]), ({2, 1}, [1, 2]),
        (torch.Size([2]), [2]), (Path("a/b"), "a/b"), (torch.device("cpu"), "cpu"), (torch.int8, "torch.int8"),
        (Colour.RED, "RED"), (datetime.date(2026, 1, 2), "2026-01-02"), (Path, "pathlib.Path"),
        (len, "builtins.len"), (b"x", "b'x'"), ("a\0\ud800", "a�?"), (MappingProxyType({1: Path("p")}), {"1": "p"}),
        (Optim(np.float64(1.0)), {"lr": 1.0, "betas": [0.9, 0.999]}), (argparse.Namespace(n=np.int8(1)), {"n": 1}),
        (np.timedelta64(3, "s"), "3 seconds"), (np.array(["2026-01-02"], "M8[ns]"), ["2026-01-02T00:00:00.000000000"]),
        (np.ma.masked, None), (Flags(0), "0"), (Flags.A | Flags.B, "A|B"), (re.compile("a"), "re.compile('a')"),
    ],
)  # fmt: skip
def test_a_setting_of_any_kind_is_written_as_json(value, expected):
    found = settings({"a": {"b": value}})
    assert found == {"a": {"b": expected}}
    json.dumps(found, allow_nan=False)


def test_settings_may_be_a_namespace_or_a_dataclass_and_nothing_else():
    assert settings(None) == {}
    assert settings(argparse.Namespace(out=Path("x"))) == {"out": "x"}
    assert settings(Optim(1))["betas"] == [0.9, 0.999]
    with pytest.raises(UserError, match=r"give a dictionary, such as vars\(config\), an argparse"):
        settings("lr=1")


def test_a_setting_without_a_text_is_refused_by_its_key():
    with pytest.raises(UserError, match=r"config\['model'\]\['inner'\]\[1\] is a object, which has no text"):
        settings({"model": {"inner": [1, object()]}})
    for value, words in (
        (torch.ones(2, device="meta"), r"config\['a'\] is a Tensor that cannot be read"),
        (Decimal("sNaN"), r"config\['a'\] is a Decimal that cannot be read"),
        (Unreadable(b=1), r"config\['a'\] is a Unreadable that cannot be read .*interpolation key 'b'"),
        (Optim(lambda: 1).lr.__code__, r"config\['a'\] is a code, which has no text"),
        ({1: "a", "1": "b"}, r"two names in config\['a'\] have one text: 1, '1'"),
    ):
        with pytest.raises(UserError, match=words):
            settings({"a": value})
    circle: dict = {}
    circle["again"] = circle
    with pytest.raises(UserError, match="contains itself"):
        settings(circle)


def test_numbers_of_other_libraries_count_as_numbers(run):
    numbers = {"max_seconds": np.float32(60), "evaluate_every": np.int64(8), "patience": torch.tensor(3)}
    with run(target="mse <= 0.5", seed=np.int64(7), config={"lr": np.float32(0.5)}, **numbers) as open_run:
        for _ in open_run.epochs(np.int32(1)):
            open_run.step(Decimal("0.5"), samples=np.prod((4, 2)))
            open_run.step(np.float64(0.5), samples=torch.tensor(8))
            open_run.log(rate=Decimal("0.25"), norm=torch.tensor(2.0, requires_grad=True))
            open_run.evaluate(mse=np.float32(0.75))
    record = read_run(open_run.folder)
    assert (record.seed, record.config["train"]["lr"], record.config["train"]["max_seconds"]) == (7, 0.5, 60.0)
    assert record.result["samples"] == 16


@pytest.mark.parametrize("value", [True, "8", 1.5, None, [8], np.array([1, 2]), torch.zeros(2), float("nan"), -1])
def test_what_is_no_whole_number_is_refused_by_name(value):
    with pytest.raises(UserError, match=r"^run.step: samples is .*: give a whole number of at least 0"):
        whole(value, "run.step: samples", least=0)


def test_what_is_no_number_is_refused_by_name():
    assert real(np.float64("nan"), "metric auc") != 0
    assert (real(10**400, "metric auc"), real(-(10**400), "metric auc")) == (float("inf"), float("-inf"))
    for value in ("0.5", [0.5], None, torch.zeros(2), np.ma.masked, np.ma.array(0.5, mask=True)):
        with pytest.raises(UserError, match=r"(?s)metric auc is .*, not a number: .*auc=value.item"):
            real(value, "metric auc")


@pytest.mark.parametrize("name", ["val/acc", "top-1", "R@1", "mAP50-95", "F1 (macro)", "eval.loss", "recall>5"])
def test_a_target_may_have_a_metric_of_any_name(name, run):
    assert Target.parse(f"max {name}").metric.name == name
    with run(target=f"{name}>= 0.9", confirm=1) as open_run:
        open_run.step(0.5, samples=1)
        assert open_run.evaluate(**{name: 0.95})
    assert read_run(open_run.folder).config["train"]["target_metric"] == name


def test_with_json_the_result_is_the_last_line_whatever_the_script_prints_at_its_exit(tmp_path):
    script = tmp_path / "late.py"
    script.write_text("import atexit, torch\natexit.register(print, 'View run at http://localhost')\n")
    command = [sys.executable, "-m", "labkit", "run", "--json", "--runs-dir", tmp_path / "runs", script]
    *_, before, last = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert before.startswith("View run")
    assert json.loads(last)["status"] == "done"
