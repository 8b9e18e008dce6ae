"""The league: rules that run folders show, an exact test with failures, and how often it errs (simulated)."""

import hashlib
import itertools
import json
from datetime import datetime, timedelta

import numpy as np
import pytest
from made_up import DISTURBED, write_run

from labkit import DataError, UserError, project
from labkit.runs import read_run
from labkit_course import league
from labkit_course.league import Track, compare, judge, signed_rank_p

TRACK = Track("auc >= 0.78", cores=1, data="synthetic")
OLD, NEW = "standing = 1\n", "challenger = 1\n"
BEGAN = datetime.fromisoformat("2026-11-29T10:00:00+00:00")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "new.py").write_text(NEW)
    (tmp_path / "league").mkdir()
    for name in (league.TRACKS, league.HISTORY):
        shipped = project.shipped_datasets().parent / "league" / name
        text = shipped.read_text()
        (tmp_path / "league" / name).write_text(text.splitlines()[0] + "\n" if name == league.HISTORY else text)
    tracks = (tmp_path / "league" / league.TRACKS).read_text()
    more = "".join(f'\n[{name}]\ntarget = "auc >= 0.78"\ncores = 1\n' for name in ("small", "other"))
    (tmp_path / "league" / league.TRACKS).write_text(tracks + more)
    return tmp_path


def run_at(place, script, seed, turn, time_s, *, tests=0, **more):
    """A run whose third evaluation of five reaches the target after so many seconds; None fails."""
    values = (0.5, 0.6, 0.79, 0.8, 0.8) if time_s else (0.5, 0.6)
    sha256 = hashlib.sha256(script.encode()).hexdigest()
    config = {"script_sha256": sha256, "arguments": ["--seed", str(seed)]} | more.pop("config", {})
    train = {"confirm_evaluations": 2} | more
    folder = write_run(place / "runs", values, seed=seed, every_s=(time_s or 3) / 3, config=config, **train)
    content = json.loads((folder / "run.json").read_text())
    began = BEGAN + timedelta(minutes=turn)
    content |= {"started_at": began.isoformat(), "ended_at": (began + timedelta(seconds=30)).isoformat()}
    (folder / "run.json").write_text(json.dumps(content))
    with (folder / "events.jsonl").open("a") as events:
        for _ in range(tests):
            events.write(json.dumps({"event": "tested", "time": began.isoformat(), "metrics": {}}) + "\n")
    return folder


def run_rounds(place, seeds=7, times=(3.0, 2.0, 3.03), change=None):
    """Standing, challenger, standing for each seed; `change` is the seed, the turn and what is different there."""
    runs = {OLD: [], NEW: []}
    for seed, turn in itertools.product(range(seeds), range(3)):
        script, time_s = (OLD, NEW, OLD)[turn], times[turn] * (1 + seed / 50)
        given = {"time_s": time_s} | (change[2] if change and change[:2] == (seed, turn) else {})
        if given.pop("omit", False):
            continue
        runs[script].append(run_at(place, script, seed, 3 * seed + turn, **given))
    return runs[OLD], runs[NEW]


def test_a_challenger_that_wins_every_pair_is_a_record(place):
    found = judge(TRACK, *run_rounds(place))
    assert found.is_record and found.p == 1 / 128 and found.seeds == 7 and found.failed == (0, 0)
    assert found.floor == pytest.approx(1.01) and 1.5 <= found.times_as_fast <= 1.515


def test_noise_is_no_record(place):
    found = judge(TRACK, *run_rounds(place, times=(3.0, 2.98, 3.1)))
    assert not found.is_record  # always sooner, and by less than two runs of one seed differ


def test_a_failed_challenger_is_the_last_of_all(place):
    assert not judge(TRACK, *run_rounds(place, change=(3, 1, {"time_s": None}))).is_record


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"others": DISTURBED}, "other programs disturbed it"),
        ({"target": 0.7}, "its target is not auc >= 0.78"),
        ({"confirm_evaluations": 1}, "confirmed"),
        ({"data": "other"}, "its data are other, not synthetic"),
        ({"tests": 2}, "looked at the test split 2 times"),
        ({"config": {"profile": {}}}, "imported, profiled"),
        ({"lr": 0.5}, "other settings"),
        ({"config": {"script_sha256": "x"}}, "another script"),
        ({"config": {"arguments": ["--seed", "2", "--fast"]}}, "another script or other settings"),
    ],
)
def test_a_run_that_breaks_a_rule_is_named(place, given, words):
    first, run = run_at(place, NEW, 1, 0, 2.0), run_at(place, NEW, 2, 1, 2.0, **given)
    with pytest.raises(UserError, match=f"{run.name} .*{words}"):
        league.checked(TRACK, [first, run])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((2, 1, {"omit": True}), "has seeds"),
        ((6, 1, {"omit": True}), "has seeds"),
        ((2, 2, {"omit": True}), "standing, challenger, standing"),
    ],
)
def test_seeds_are_paired(place, change, words):
    standing, challenger = run_rounds(place, change=change)
    with pytest.raises(UserError, match=words):
        judge(TRACK, standing, challenger)


def test_runs_of_two_machines_are_not_compared(place):
    standing, challenger = run_at(place, OLD, 0, 0, 3.0), run_at(place, NEW, 0, 1, 2.0, budget="half")
    with pytest.raises(UserError, match=f"{challenger.name} ran on .* half"):
        judge(TRACK, [standing], [challenger])


def test_runs_that_were_not_given_are_found(place):
    standing, challenger = run_rounds(place)
    left_out = run_at(place, NEW, 3, 10, 9.0)
    with pytest.raises(UserError, match=f"{left_out.name} was run in between"):
        judge(TRACK, standing, challenger)


def test_cores_money_and_the_test_split_are_rules_of_a_track(place):
    run = run_at(place, NEW, 0, 0, 2.0)
    with pytest.raises(UserError, match="1 cores, not 2"):
        league.checked(Track("auc >= 0.78", cores=2), [run])
    with pytest.raises(UserError, match="not scored on the test split"):
        league.checked(Track("auc >= 0.78", tested=True), [run])
    (cheap,), (dear,) = (league.checked(Track("auc >= 0.78", max_usd=usd), [run]) for usd in (1.0, 1e-9))
    assert cheap.time_s == pytest.approx(2.0) and dear.time_s == np.inf
    (tested,) = league.checked(Track("auc >= 0.78", tested=True), [run_at(place, NEW, 1, 1, 2.0, tests=1)])
    assert tested.time_s == pytest.approx(2.0)


def test_a_record_enters_the_history_with_its_script(place, cli):
    at = ("--league", place / "league")
    assert "No record stands yet" in cli("league show", *at).out
    standing, challenger = run_rounds(place)
    first = ["--holder", "ann", "--script", place / "old.py", "--challenger", *standing[::2], *at]
    assert "small: 3.18 s by ann" in cli("league enter small", *first).out
    second = ["--holder", "bob", "--challenger", *challenger, "--standing", *standing, *at]
    with pytest.raises(UserError, match="is not the script of"):
        league.enter(place / "league", "small", "bob", place / "old.py", standing, challenger)
    assert "a record" in cli("league judge small --standing", *standing, "--challenger", *challenger, *at).out
    cli("league enter small --script", place / "new.py", *second)
    old, new = league.read_history(place / "league")
    assert (old["p"], new["p"], new["times_as_fast"]) == ("", "0.0078", "1.500")
    assert [(place / "league" / each["code"]).read_text() for each in (old, new)] == [OLD, NEW]
    assert new["commit"] == read_run(challenger[0]).git_commit
    with pytest.raises(UserError, match="is not of the standing record"):
        league.enter(place / "league", "small", "bob", place / "new.py", standing, challenger)
    cli("league enter other --holder ann --script", place / "league" / old["code"], "--challenger", *standing[::2], *at)
    assert "bob" in cli("league show", *at).out and len(league.read_history(place / "league")) == 3


def test_a_league_that_is_damaged_is_refused(place):
    with pytest.raises(UserError, match="is no track"):
        league.track_named(place / "league", "clicks")
    with pytest.raises(DataError, match="cannot be read"):
        league.read_tracks(place)
    (place / "league" / league.HISTORY).write_text("track,holder\n")
    with pytest.raises(DataError, match="its columns"):
        league.read_history(place / "league")


def test_the_shipped_tracks_can_be_run():
    shipped = project.shipped_datasets().parent / "league"
    for track in league.read_tracks(shipped).values():
        assert league.tracking.Target.parse(track.target).value is not None
    history = league.read_history(shipped)
    assert len({each["code"] for each in history}) == len({each["sha256"] for each in history}), "a script is kept once"
    for record in history:
        code = (shipped / record["code"]).read_bytes()
        assert hashlib.sha256(code).hexdigest() == record["sha256"], "the script of a record stays as it ran"


def test_the_exact_p_is_that_of_all_signs():
    random = np.random.default_rng(0)
    for differences in (random.normal(1, 1, 8), np.array([1, -1, 2, 2, np.inf, -np.inf, 3, 0.5])):
        from scipy.stats import rankdata

        ranks = rankdata(np.abs(differences))
        seen = ranks[differences > 0].sum()
        sums = [np.dot(ranks, signs) for signs in itertools.product((0, 1), repeat=len(ranks))]
        assert signed_rank_p(differences) == pytest.approx(np.mean(np.array(sums) >= seen - 1e-9))


def share_of_records(seeds, *, faster=1.0, seed_spread=0.2, noise=0.03, fails=0.0, heavy=False, count=1000):
    """The share of challengers that the rules call a record, by simulation."""
    random, found = np.random.default_rng(seeds), 0
    for _ in range(count):
        errors = random.standard_t(2, (seeds, 3)) if heavy else random.normal(size=(seeds, 3))
        times = np.exp(noise * errors)
        times[:, ::2] *= np.exp(seed_spread * random.normal(size=(seeds, 1)))
        times[:, 1] *= np.exp(seed_spread * random.normal(size=seeds)) / faster
        lost = random.random((seeds, 2)) < fails  # a seed fails twice, or not at all
        times[:, ::2][lost[:, 0]] = np.inf
        times[:, 1][lost[:, 1]] = np.inf
        if np.isfinite(times[:, 0]).sum() >= 3:
            found += compare(times[:, ::2], times[:, 1]).is_record
    return found / count


@pytest.mark.parametrize("seeds", [7, 12, 20])
@pytest.mark.parametrize("more", [{}, {"fails": 0.2}, {"heavy": True}, {"seed_spread": 0.0, "noise": 0.001}])
def test_at_most_one_false_record_in_a_hundred(seeds, more):
    assert share_of_records(seeds, **more) <= 0.01


def test_the_power_that_the_docs_state():
    """docs/league.md, rounded to per cent: scripts that are faster, with seeds that vary on their own."""
    cells = ((7, 1.5, 0.2, 50), (12, 1.5, 0.2, 90), (7, 1.2, 0.05, 80), (20, 1.1, 0.05, 80))
    for seeds, faster, seed_spread, percent in cells:
        found = share_of_records(seeds, faster=faster, seed_spread=seed_spread, count=500)
        assert round(100 * found) == percent
