"""Runs that go on where they were, and their checkpoints."""

import errno
import json
import math
import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from folders import as_killed, events, in_harness, losses, resuming
from torch.utils.data import DataLoader, Dataset, TensorDataset

import labkit
from labkit.errors import UserError
from labkit.runs import read_run
from labkit.tracking.ending import RunFailed, StopRequest
from labkit.tracking.log import load_checkpoint, save_checkpoints

X = torch.arange(96.0).view(24, 4) / 100
ROWS = TensorDataset(X, X.sum(1, keepdim=True))


class Augmented(Dataset):
    """Rows with noise that is drawn when they are read, in a worker or here."""

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, index):
        x, y = ROWS[index]
        return x + torch.randn(4) + random.random(), y


class Anywhere:
    """A loader that can start anywhere, its order by seed and epoch."""

    def __len__(self):
        return 6

    def __iter__(self):
        return self.at(0, 0)

    def at(self, epoch, start):
        order = torch.randperm(24, generator=torch.Generator().manual_seed(epoch))
        return (ROWS[rows] for rows in order.split(4)[start:])


LOADERS = {
    "shuffled": lambda: DataLoader(ROWS, 4, shuffle=True),
    "own generator": lambda: DataLoader(ROWS, 4, shuffle=True, generator=torch.Generator().manual_seed(3)),
    "workers": lambda: DataLoader(Augmented(), 4, shuffle=True, num_workers=2),
    "persistent workers": lambda: DataLoader(ROWS, 4, shuffle=True, num_workers=2, persistent_workers=True),
    "augmented": lambda: DataLoader(Augmented(), 4, shuffle=True),
    "anywhere": Anywhere,
}


def train(
    runs_dir: Path, loader="shuffled", epochs=3, after_step=lambda run: None, after_all=lambda run: None, **options
):
    """A script in which all draws random numbers: weights, dropout, batches, evaluation, the loop itself."""
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    batches = LOADERS[loader]()
    options = {"target": "max score", "evaluate_every": 8} | options
    with labkit.Run("t", runs_dir=runs_dir, **options) as run:
        run.keep(model=model, optimizer=optimizer, schedule=schedule)
        for _ in run.epochs(epochs):
            scale = 1 + torch.rand(())  # drawn once an epoch, before its batches
            for x, y in run.batches(batches):
                x = x * scale * random.random() + np.random.rand()
                loss = (model(x) - y).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss, samples=len(x))
                if run.due:
                    run.evaluate(score=-loss.item() + 1e-9 * torch.rand(()))
                after_step(run)
            schedule.step()  # once an epoch
        after_all(run)
    return run


@pytest.fixture
def unbroken(runs):
    """The losses of a run that nothing interrupts."""
    return losses(train(runs).folder)


CHECKPOINTS = {"shuffled": (0, 4, 6, 8), "persistent workers": (6, 8)}
"""Steps of the latest when the run is killed: none yet, in the first epoch, at its end, and in the second epoch, which
is tried of all loaders. There are two batches of four rows between evaluations, and six an epoch."""


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # whose first step was in another process
@pytest.mark.parametrize("loader", LOADERS)
def test_after_a_kill_the_losses_are_the_same(runs, save_each_time, loader):
    steps, copies = CHECKPOINTS.get(loader, (8,)), []

    def copy_after_the_next(run):
        if run.position.step - 1 in steps:
            copies.append(as_killed(run.folder))

    expected = losses(train(runs, loader, after_step=copy_after_the_next).folder)
    assert len(expected) == 18
    for step, copy in zip(steps, copies, strict=True):
        with resuming(copy):
            again = train(runs, loader)
        assert [event["step"] for event in events(again.folder, "resumed")] == [step]
        assert losses(again.folder) == expected


def test_what_follows_the_batches_is_not_repeated_after_a_stop_within_an_epoch(runs, unbroken):
    """A stop ends the batches, the script steps its schedule and evaluates, and another process ends the epoch."""
    stop = StopRequest()
    with in_harness(runs, stop):
        run = train(
            runs,
            after_step=lambda run: run.position.step == 9 and stop.request("the test"),
            after_all=lambda run: run.evaluate(score=1e9),
        )
    assert run.position.step == 9
    with resuming(run.folder):
        again = train(runs)
    assert losses(run.folder) == unbroken
    assert again.result["best_validation"] == 1e9  # what was found after the stop is kept


def test_who_tests_the_best_weights_goes_on_from_the_last(runs, unbroken):
    def test(run):
        run.position.best_step = 1
        assert run.load_best()
        run.test(score=0)

    with in_harness(runs):
        first = train(runs, epochs=2, after_all=test)
    with resuming(first.folder):
        train(runs, epochs=3)
    assert losses(first.folder) == unbroken


DATA = {"name": "d", "fingerprint": "a"}


def test_a_resume_that_is_refused_leaves_the_record_as_it_was(runs):
    config = {"lr": 1, "data": DATA}
    folder = train(runs, config=config).folder
    before = read_run(folder)
    for changes, words in (
        ({"config": {"lr": 2, "data": DATA}}, "lr was 1 and is 2.*only target, max_seconds and max_epochs may change"),
        ({"config": {"lr": 1, "data": DATA | {"fingerprint": "b"}}}, "data 'd' has changed"),
        ({}, "give a larger --max-epochs"),
        ({"target": "score >= 9", "max_seconds": 1e-9}, "done \\(max_seconds 1e-09 used up\\): give a larger"),
        ({"epochs": 2}, "done \\(max_epochs 3 trained\\): give a larger"),
    ):
        with resuming(folder), pytest.raises(UserError, match=words):
            train(runs, **{"config": config} | changes)
    other, words = labkit.Run("t", target="max score", evaluate_every=8, config=config), "has model.* but no head"
    with resuming(folder), pytest.raises(UserError, match=words), other:
        other.keep(head=torch.nn.Linear(1, 1))
    after = read_run(folder)
    assert (after.status, after.result, after.config) == (before.status, before.result, before.config)


def test_neither_a_diverged_run_nor_that_of_another_machine_is_gone_on_with(runs):
    with pytest.raises(RunFailed):
        train(runs, after_step=lambda run: run.position.step == 3 and run.step(math.nan, samples=1))
    (folder,) = runs.iterdir()
    with resuming(folder), pytest.raises(UserError, match="this run diverged"):
        train(runs)
    record, folder = read_run(folder), train(runs, target=None).folder
    cpu, cores = record.devices[0]["name"], record.budget["cores"]
    for change, words in (
        ({"devices": [{"name": "a VAX"}]}, f"used a VAX, {cores} cores, but here it would use {re.escape(cpu)}, "),
        ({"budget": record.budget | {"cores": 999}}, "999 cores, but here"),
    ):
        text = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(text | change))
        with resuming(folder), pytest.raises(UserError, match=f"{words}.*would mix two machines"):
            train(runs, target=None, epochs=4)
        (folder / "run.json").write_text(json.dumps(text))


# the target may be another one


def test_a_harder_target_is_not_reached_by_the_easier_ones_crossing_and_a_streak_goes_on(runs):
    first = train(runs, target="score >= -100", confirm=4, epochs=1)
    assert (first.position.step, first.result["ended_by"]) == (6, "max_epochs")
    copy = as_killed(first.folder)
    with resuming(first.folder):
        again = train(runs, target="score >= -100", confirm=4)
    assert (again.position.step, again.result["ended_by"]) == (8, "target")
    crossed = [(event["kind"], event["step"]) for event in events(first.folder, "target_reached")]
    assert crossed == [("first", 2), ("sustained", 2)]
    with resuming(copy):
        assert train(runs, target="score >= -0.1", confirm=4).result["target_reached"] is False


def test_another_metric_has_a_best_of_its_own_and_a_run_that_patience_ended_gets_some_more(runs):
    def script(target, epochs=2, **options):
        with labkit.Run("t", target=target, runs_dir=runs, **options) as run:
            run.keep(model=torch.nn.Linear(1, 1))
            for epoch in run.epochs(epochs):
                run.step(1.0, samples=1)
                run.evaluate(auc=0.5, log_loss=3 / (epoch + 1))
        return run

    first = script("auc >= 0.9")
    assert first.result["best_validation"] == 0.5
    with resuming(first.folder):
        again = script("log_loss <= 3")
    assert again.result["target_reached"] is True
    assert again.position.step == 2  # reached from the start, so not a step is trained
    assert again.result["best_validation"] is None  # nothing was evaluated for it yet
    impatient = script("auc >= 0.9", 50, patience=3)
    assert (impatient.position.step, impatient.result["ended_by"]) == (4, "patience")
    with resuming(impatient.folder):
        assert script("auc >= 0.9", 51, patience=3).position.step == 7


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/labkit-was-here",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"format": 5, "model": Evil()}, r"a\.pt.*cannot be read"),
        ({"format": 4}, "format is 4 .*version that wrote it"),
    ],
    ids=["code to run", "another labkit's"],
)
def test_a_checkpoint_that_cannot_be_read_says_what_to_do(tmp_path, content, words):
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(UserError, match=words):
        load_checkpoint(tmp_path / "a.pt")
    (tmp_path / "a.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:500])
    with pytest.raises(UserError, match=r"a\.pt.*cannot be read"):
        load_checkpoint(tmp_path / "a.pt")


def test_a_full_disk_keeps_the_old_checkpoints(tmp_path, monkeypatch):
    paths = [tmp_path / "best.pt", tmp_path / "latest.pt"]
    save_checkpoints({path: {"step": 1} for path in paths})
    plain = torch.save

    def no_space_for_the_second(content, file):
        if "latest" in file.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(content, file)

    monkeypatch.setattr(torch, "save", no_space_for_the_second)
    with pytest.raises(UserError, match="disk is full"):
        save_checkpoints({path: {"step": 2} for path in paths})
    assert [load_checkpoint(path)["step"] for path in paths] == [1, 1]  # a best that is newer would be tested for it
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["best.pt", "latest.pt"]
