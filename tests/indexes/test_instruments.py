"""The command, and the ladder of instruments: which one is used, why the others are not, and what callgrind counts."""

import os
import shutil
from pathlib import Path

import pytest

from labkit import UserError, compiled, indexes
from labkit.indexes.instruments import ladder

SMALL = "--n 2e4 --requests 1000"


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder that is the whole PATH: a test puts programs into it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_auto_takes_the_best_rung_that_works_and_says_why_not_those_above(tools):
    assert ladder.choose_instrument("auto")[0] == "replay"
    reasons = ladder.choose_instrument("auto")[1]
    assert [reason.split(":")[0] for reason in reasons] == ["perf", "callgrind"]
    assert all("is not installed" in reason for reason in reasons) or compiled.why_not_compiled()


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("<not supported>,,cycles:u,0,100.00,,", "do not answer"),
        ("Error: No permission to enable cycles:u event. perf_event_paranoid setting is 4", "denies"),
    ],
)
def test_a_pmu_that_is_not_there_or_denies_is_explained(tools, said, words):
    program(tools, "perf", f"echo '{said}' >&2; exit 1")
    assert words in str(ladder.why_not_perf())
    with pytest.raises(UserError, match=words) as refused:
        ladder.choose_instrument("perf")
    assert refused.value.field == "instrument"


@pytest.mark.compiled
def test_a_pmu_that_answers_is_used(tools):
    program(tools, "perf", "echo '1234567,,cycles:u,100,100.00,,' >&2")
    assert ladder.choose_instrument("auto") == ("perf", [])


@pytest.mark.compiled
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="marks are known for x86-64 only")
def test_an_old_valgrind_is_refused_by_its_version(tools):
    program(tools, "valgrind", "echo valgrind-3.11.0")
    assert "valgrind-3.11 is too old" in str(ladder.why_not_callgrind())
    program(tools, "valgrind", "echo no >&2; exit 1")
    assert "does not run" in str(ladder.why_not_callgrind())


@pytest.mark.compiled
@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
def test_perf_counts_the_region_only(monkeypatch):
    """Events of the system, which answer without a PMU, in place of those of the CPU."""
    monkeypatch.setattr(ladder, "EVENTS", ("task-clock", "page-faults"))
    numbers = {}
    for requests in (2000, 2_000_000):
        measured = ladder.measure(["btree"], indexes.Workload("uniform", 1000, "reads", requests), "perf")
        numbers[requests] = {each.what: each.value for each in measured if each.instrument.startswith("PMU")}
    if not numbers[2000]:
        pytest.skip("perf may not count here")
    # to import numba alone takes thousands of page faults; in the region there are those of the answers
    assert numbers[2000]["page-faults"] * 2000 < 1000
    assert numbers[2_000_000]["task-clock"] < numbers[2000]["task-clock"] * 100


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_callgrind_counts_the_same_twice_and_of_the_region_only():
    if reason := ladder.why_not_callgrind():
        pytest.skip(reason)
    numbers = ladder.measure(["btree", "btree"], indexes.Workload("uniform", 2000, "reads", 3000), "callgrind")
    first, second = (each.value for each in numbers if each.what == "instructions")
    assert first == second
    assert 50 < first < 1000  # to start Python takes 10^9 of them


def test_the_command_prints_each_number_with_its_instrument(cli):
    printed = cli(f"index run btree learned {SMALL} --instrument replay --json").json
    assert printed["workload"]["n"] == 20_000 and printed["instrument"] == "replay"
    assert {each["index"] for each in printed["numbers"]} == {"btree", "learned"}
    assert all(each["instrument"] for each in printed["numbers"])
    whats = {each["what"] for each in printed["numbers"]}
    assert {"cache lines touched", "misses in a cache of 2 MiB"} <= whats
    assert not any("cycle" in what or "stall" in what for what in whats)


@pytest.mark.compiled
def test_the_counters_of_work_explain_appends(cli):
    printed = cli(f"index run learned learned-bounded --workload append {SMALL} --instrument clock").text
    assert "bitmap words scanned" in printed and "counted by the index" in printed


def test_a_program_that_dies_is_reported_with_what_it_said(monkeypatch):
    monkeypatch.setattr(
        ladder, "ENVIRONMENT", {"PYTHONPATH": str(Path(__file__).parent / "nowhere"), "PYTHONHOME": "/nowhere"}
    )
    with pytest.raises(UserError, match="ended early"):
        ladder.measure(["btree"], indexes.Workload("uniform", 1000, "reads", 100), "clock")


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ("index run bptree", "did you mean 'btree'"),
        ("index run btree --n 1e9", "n is 1,000,000,000"),
        ("index run btree --n many", "--n is many"),
        ("index run btree --keys normal", "did you mean 'lognormal'"),
        ("index run btree --workload mixed", "workload 'mixed'"),
        ("index run btree --instrument cachegrind", "did you mean 'callgrind'"),
    ],
)
def test_a_wrong_word_is_refused_with_the_right_ones(cli, command, field):
    assert field in cli(command, status=2).text


def test_without_numba_the_replay_is_what_remains(monkeypatch, cli):
    monkeypatch.setenv("LABKIT_COMPILED", "0")
    printed = cli("index run btree --n 2000 --requests 200 --json").json
    assert printed["instrument"] == "replay" and all("LABKIT_COMPILED=0" in each for each in printed["not_used"])
    assert not any(each["unit"] == "ns" for each in printed["numbers"])
    assert "choose replay" in cli("index run btree --instrument clock", status=2).text


def test_more_keys_than_memory_has_room_for_are_refused(monkeypatch):
    monkeypatch.setattr(ladder, "BYTES_A_KEY", 10**12)
    with pytest.raises(UserError, match="of memory") as refused:
        ladder.measure(["btree"], indexes.Workload(), "replay")
    assert refused.value.field == "n"
