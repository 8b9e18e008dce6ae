"""Sweeps in YAML: what varies becomes cells, and each cell is checked before anything starts."""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit import UserError, hardware, jobs, project, tracking
from labkit.launch.cells import Cell, Settings, Sweep, cell_key
from labkit.launch.mix_file import NOTHING, SAMPLED
from labkit.launch.rows import Kind, Mistakes, Row, read_settings, read_yaml, safe_name

EXAMPLE = """\
job: dlrm:tour
settings: {data: synthetic-small}
grid:
  batch_size: [128, 512]
seeds: [0, 1, 2]"""
FIELDS: dict[str, Kind] = {
    "name": str, "job": str, "script": str, "arguments": "words", "settings": "fields", "grid": "fields", "cells": Row,
    "random": "fields", "seeds": [int], "repeats": "count", "budget": [str], "max_seconds": "duration",
}  # fmt: skip
RANDOM_FIELDS: dict[str, Kind] = {"samples": "count", "seed": int, "settings": "fields"}
RANGE_FIELDS: dict[str, Kind] = {"from": float, "to": float, "scale": ("linear", "log"), "whole": ("true", "false")}
ELSEWHERE = {
    "seed": "list seeds next to grid, as in seeds: [0, 1, 2].",
    "budget": "write it next to grid, as in budget: [one-core, whole].",
}
"""Settings that have a field of their own"""
WHOLE = "whole"
"""Name of the budget that is the whole device: the first GPU, or all cores"""
BY_MACHINE = {WHOLE: ("one-core", "all-cores", "gpu", "gpu:0"), "all-cores": ("one-core", "all-cores")}
"""What budgets that are named for a machine can be called there"""
MOST_CELLS = 10_000
"""More are a typing error"""
DIGITS = 4
"""Digits of a number that is drawn"""
NO_FIELDS = Row((), "")
OF_GRIDS = ("name", "file", "program", "parameters", "method", "collocation", "devices", "listeners")
OF_GRIDS += ("experiment", "workload", "metric", "project", "entity", "description")
"""Fields of radT's grids (itu-rad/radt, examples/yaml), and of W&B's sweeps, which they follow"""


def read_sweep_file(path: Path | str) -> Sweep:
    """Read a sweep; a UserError lists every error of every field, with its line.

    A script, and data with a relative path, are looked for in the file's folder. Grids of radT's and W&B's are sweeps,
    too. A name without `.yaml`, where there is no such file, is that of a study that ships.
    """
    path = find_sweep_file(Path(path))
    top, mistakes = read_yaml(path, EXAMPLE), Mistakes(str(path))
    if "parameters" in top and ("file" in top) != ("program" in top) and not {"job", "script", "jobs"} & top.keys():
        top = _from_grid(top, mistakes)
    given = _values(top, FIELDS, mistakes)
    name = given.get("name", path.stem)
    if name != safe_name(name):
        said = f"{name!r} also names a folder: use letters, digits and . _ + - only, such as {safe_name(name)}."
        mistakes.add_field(top, "name", said)
    if ("job" in top) == ("script" in top):
        mistakes.add(top.place, "give it one of job (such as dlrm:tour) and script (such as train.py).")
    target = None
    if not {"job", "script"} & given.keys():
        mistakes.raise_if_any()
    with mistakes.noting(top, "job" if "job" in top else "script"):
        target = _Target(given, path.parent)
    if target is None:  # what its settings can be is not known
        mistakes.raise_if_any()
    if target.kind is not None and "arguments" in given:
        mistakes.add_field(top, "arguments", f"only a script has arguments: write settings of {target.job} as fields.")
    asked, offered, budgets = given.get("budget", [WHOLE]), hardware.offered_budgets(), []
    whole = next((budget for budget in offered if budget.torch_name != "cpu"), offered[-1])
    for name in asked:
        with mistakes.noting(top, "budget"):
            budgets.append(whole if name == WHOLE else hardware.parse_budget(name))
    seeds = given.get("seeds", [0 if target.is_job else None])
    for seed in seeds:
        if seed is not None and not 0 <= seed < 2**63:
            mistakes.add_field(top, "seeds", f"{seed} is not a seed: give whole numbers from 0 to 2^63 - 1.")
    for name, values in (("seeds", seeds), ("budget", [budget.name for budget in budgets])):
        _refuse_twice(values, name, top, mistakes)
    repeats = range(1, given.get("repeats", 1) + 1)
    mixes = _Expansion(target, top, given, mistakes, len(seeds) * len(budgets) * len(repeats))
    mistakes.raise_if_any()

    limit_s, cells = given.get("max_seconds"), []
    # drift over hours hits all settings alike: all of a repeat before the next, all of a seed, budgets taking turns
    for repeat, seed in itertools.product(repeats, seeds):
        for settings, (name, budget) in itertools.product(mixes.found, zip(asked, budgets, strict=True)):
            try:
                everything, job = target.complete(mixes.fixed | settings, seed, limit_s)
            except UserError as error:
                mixes.note(error, settings)
                continue
            key, *others = (
                cell_key(target.script_name, tuple(given.get("arguments", ())), everything, each, seed, repeat)
                for each in (budget.name, *BY_MACHINE.get(name, ()))
            )
            cells.append(Cell(key, settings, job, budget, seed, repeat, tuple(others)))
    mistakes.raise_if_any()
    names = dict.fromkeys(name for settings in mixes.found for name in settings)
    varies = {name: len({settings.get(name) for settings in mixes.found}) for name in names}
    varies |= {"seed": len(seeds), "budget": len(budgets), "repeat": len(repeats)}
    return Sweep(
        given.get("name", path.stem),
        target.job,
        target.script,
        tuple(cells),
        {name: count for name, count in varies.items() if count > 1},
        max_seconds=limit_s or mixes.fixed.get("max_seconds") if target.is_job else limit_s,
        where=top.places["job" if target.is_job else "script"],
    )


def _from_grid(top: Row, mistakes: Mistakes) -> Row:
    """The fields of a sweep that a grid of radT's or W&B's stands for; what a sweep cannot do is noted."""
    way, device = (str(top.get(name, "-")) for name in ("collocation", "devices"))
    listeners = str(top.get("listeners", "-")).lower().replace(" ", "").split("+")
    if (method := top.get("method", "grid")) != "grid":
        said = f"{method!r} draws settings: write them under random in a sweep (docs/sweeps.md), or use method: grid."
        mistakes.add_field(top, "method", said)
    if way.lower() not in NOTHING:
        said = f"a sweep runs a cell at a time, not {way}: use `labkit collocate` with a CSV of radT's, or remove it."
        mistakes.add_field(top, "collocation", said)
    if device.lower() not in (*NOTHING, "0", "cpu"):
        said = f"a sweep runs on the first device: start it with CUDA_VISIBLE_DEVICES={device}, and remove this."
        mistakes.add_field(top, "devices", said)
    if profilers := ", ".join(each for each in listeners if each not in (*SAMPLED, *NOTHING)):
        said = f"{profilers} is no sampler: remove it; `labkit profile run` runs a script under a profiler."
        mistakes.add_field(top, "listeners", said)
    file = "file" if "file" in top else "program"
    # fields of a sweep can be added, such as seeds
    fields = {name: value for name, value in top.items() if name not in OF_GRIDS} | {"script": top[file]}
    if "name" in top:
        fields["name"] = safe_name(str(top["name"]))
    parameters: Any = top["parameters"]
    groups: dict[str, Any] = {} if isinstance(parameters, Row) else {"grid": parameters}
    for name, given in parameters.items() if isinstance(parameters, Row) else ():
        if isinstance(given, Row):
            found = [given[key] for key in ("values", "value") if key in given]
            if len(given) != 1 or not found:
                said = f"it has {', '.join(given) or 'nothing'}: give it values: [...], or value: ... (docs/sweeps.md)."
                mistakes.add_field(parameters, name, said)
                continue
            given = found[0]
        row = groups.setdefault("grid" if isinstance(given, list) else "settings", Row((), parameters.place, {}))
        row[name], row.places[name] = given, parameters.places[name]
    came_from = {"script": file} | dict.fromkeys(groups, "parameters")
    places = {name: place for name, place in top.places.items() if name not in top}  # empty fields
    places |= {name: top.places[came_from.get(name, name)] for name in fields | groups}
    return Row(fields | groups, top.place, places)


def cells_too_large(sweep: Sweep) -> Iterator[tuple[Cell, str]]:
    """The cells of labkit's shapes that this machine has no room for now, each with the reason."""
    for cell in sweep.cells:
        if isinstance(cell.job, jobs.ShapeJob):
            try:
                cell.job.refuse_too_large(cell.budget)
            except UserError as error:
                yield cell, str(error)


def find_sweep_file(path: Path) -> Path:
    """The file of that path, or of a study of that name that ships."""
    shipped = project.shipped_sweeps() / f"{path}.yaml"
    return shipped if not path.exists() and not path.suffix and shipped.is_file() else path


class _Target:
    """What a sweep runs, and how settings become a job."""

    def __init__(self, given: Mapping[str, Any], folder: Path):
        self._folder, self._first, self.is_job, self.preset = folder, given.get("arguments", ()), "job" in given, ""
        if self.is_job:
            self.kind, self.preset = jobs.named_job(given["job"])
            # its preset is a setting
            self.script, self.script_name = self.kind.script(), self.kind.name
            self.job = f"{self.kind.name}:{self.preset}" if self.preset else self.kind.name
        else:
            self.script = jobs.find_script(given["script"], (folder, jobs.KITS_SCRIPTS))
            # its whole path, so that no two scripts share cells
            self.job, self.script_name = self.script.name, str(self.script.resolve())
            self.kind = jobs.ShapeJob if jobs.known_job(self.script) is jobs.ShapeJob else None

    def kinds(self, row: Row) -> dict[str, Kind]:
        """Of the settings that may stand in a row."""
        known = dict.fromkeys(row, str) if self.kind is None else self.kind.kinds()
        return {name: kind for name, kind in known.items() if name not in ELSEWHERE}

    def complete(
        self, settings: Settings, seed: int | None, limit_s: float | None
    ) -> "tuple[Settings, jobs.Job | jobs.ScriptJob]":
        """All settings that decide the result, as texts, and the job that they make.

        Raises:
            UserError: labkit's job or script refuses them.
        """
        if self.is_job:
            settings = {"preset": self.preset or "tour"} | settings
            settings |= {} if limit_s is None else {"max_seconds": limit_s}
        texts = {name: str(value) for name, value in settings.items()}
        if self.kind is not None:
            job = self.kind.from_settings(settings | {"seed": seed}, self._folder)
            return texts if self.is_job else texts | {"": limit_s}, job
        arguments = [*self._first]
        for name, value in sorted(texts.items()):
            arguments += [] if value == "false" else [f"--{name}"] if value == "true" else [f"--{name}", value]
        if seed is not None and not any(tracking.SEED in each for each in arguments):
            arguments += ["--seed", tracking.SEED]
        return texts | {"": limit_s}, jobs.ScriptJob(str(self.script), tuple(arguments))  # "" is no setting's name


def _values(row: Row, kinds: Mapping[str, Kind], mistakes: Mistakes) -> dict[str, Any]:
    """The values of a row's fields, none of which may be empty."""
    for name in row.places.keys() - row.keys():
        mistakes.add_field(row, name, "it is empty: give it a value, or remove it.")
    return read_settings(row, kinds, mistakes, ELSEWHERE)


def _refuse_twice(values: Sequence[Any], name: str, row: Row, mistakes: Mistakes) -> None:
    for value in {str(value): value for value in values if values.count(value) > 1}.values():
        mistakes.add_field(row, name, f"{value} is listed twice: remove one.")


class _Expansion:
    """What the settings, grid, cells and random samples of a file come to; each runs a number of `times`."""

    def __init__(self, target: _Target, top: Row, given: Mapping[str, Any], mistakes: Mistakes, times: int):
        self._target, self._top, self._mistakes = target, top, mistakes
        self._rows: dict[str, Row] = {}
        """Where each setting stands, by its name"""
        self._noted: set[str] = set()
        fixed, grid_row, listed = given.get("settings", NO_FIELDS), given.get("grid", NO_FIELDS), given.get("cells", [])
        self._claim(dict.fromkeys(fixed, fixed))
        self.fixed: Settings = _values(fixed, target.kinds(fixed), mistakes)
        """Settings that are the same in each cell"""
        self._claim(dict.fromkeys(grid_row, grid_row))
        grid = _values(grid_row, {name: [kind] for name, kind in target.kinds(grid_row).items()}, mistakes)
        for name, values in grid.items():
            _refuse_twice(values, name, grid_row, mistakes)
        self._claim({name: row for row in reversed(listed) for name in row})
        cells = [_values(row, target.kinds(row), mistakes) for row in listed]
        for number, row in enumerate(listed):
            if cells[number] in cells[:number]:
                mistakes.add(row.place, "this cell is listed twice: leave one of the two away.")
        cells = cells or [{}]
        samples = list(self._samples(given["random"])) if "random" in given else [{}]
        self.found: list[Settings] = []
        """Of each cell what varies, in order; seeds, budgets and repeats apart"""
        count = math.prod(map(len, grid.values())) * len(cells) * len(samples) * times
        if count > MOST_CELLS:
            mistakes.add(top.place, f"these are {count:,} cells: remove values until there are at most {MOST_CELLS:,}.")
            return
        mixed = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
        self.found = [cell | mix | sample for cell in cells for mix in mixed for sample in samples]

    def note(self, error: UserError, settings: Settings) -> None:
        """Note what the job refuses of a cell, at the setting that it is about."""
        if str(error) in self._noted:  # of another cell, which it is about as well
            return None
        self._noted.add(str(error))
        row = self._rows.get(error.field, self._top)
        if error.field in settings or not settings:
            return self._mistakes.add_field(row, error.field or "", str(error))
        cell = ", ".join(f"{name} {value}" for name, value in settings.items())
        return self._mistakes.add(row.place, f"{error} (in the cell with {cell})")

    def _claim(self, places: Mapping[str, Row]) -> None:
        """Take note of where settings stand; two places for one are a mistake."""
        for name, where in places.items():
            if name in self._rows:
                before = self._rows[name].places.get(name, self._rows[name].place)
                self._mistakes.add_field(where, name, f"it is given twice, also in {before}: remove one.")
            elif name == "preset" and self._target.preset:
                said = f"the job already names preset {self._target.preset!r}: remove one."
                self._mistakes.add_field(where, name, said)
            elif name == "max_seconds" and "max_seconds" in self._top and self._target.is_job:
                said = f"it is also given in {self._top.places[name]}: remove one."
                self._mistakes.add_field(where, name, said)
            self._rows[name] = where

    def _samples(self, row: Row) -> Iterator[Settings]:
        """Random settings, all different; the first of them stay what they are when more are asked for."""
        given = read_settings(row, RANDOM_FIELDS, self._mistakes)
        for name in ("samples", "settings"):
            if name not in row:
                self._mistakes.add(row.place, f"{name} is missing: give the number of samples, and settings to draw.")
        ranges = given.get("settings", NO_FIELDS)
        self._claim(dict.fromkeys(ranges, ranges))
        kinds, draws = self._target.kinds(ranges), {}
        for name, asked in _values(ranges, dict.fromkeys(kinds, "fields"), self._mistakes).items():
            with self._mistakes.noting(ranges, name):
                # a stream of its own: one more setting leaves those of the others
                stream = random.Random(f"{given.get('seed', 0)} {name}")
                draws[name] = _draw(asked, kinds[name], stream, self._mistakes)
        seen: set[tuple] = set()
        wanted = given.get("samples", 0) if draws and None not in draws.values() else 0
        if wanted > MOST_CELLS:
            return self._mistakes.add_field(row, "samples", f"it is {wanted:,}: ask for at most {MOST_CELLS:,}.")
        for _ in range(100 * wanted):
            sample = {name: draw() for name, draw in draws.items()}
            if (values := tuple(sample.values())) not in seen:
                seen.add(values)
                yield sample
            if len(seen) == wanted:
                return
        if wanted:
            said = f"there are only {len(seen)} different ones among these settings: ask for no more."
            self._mistakes.add_field(row, "samples", said)


def _draw(row: Row, kind: Kind, stream: random.Random, mistakes: Mistakes) -> Callable[[], Any] | None:
    """A function that draws a setting's next value; None where its range is wrong, which is noted."""
    if "choice" in row:
        choice = read_settings(row, {"choice": [kind]}, mistakes).get("choice")
        return None if choice is None else lambda: stream.choice(choice)
    given = read_settings(row, RANGE_FIELDS, mistakes)
    if len(given) < len(row):
        return None
    low, high, is_log = given.get("from"), given.get("to"), given.get("scale") == "log"
    if low is None or high is None or not low < high or (is_log and low <= 0):
        least = " above zero" if is_log else ""
        raise UserError(
            f"a range is from a number{least} to a larger one, as in {{from: 4, to: 128}}; or name a choice."
        )
    is_whole = given.get("whole") == "true"
    if kind is int and not is_whole:
        raise UserError("it takes whole numbers: add whole: true.")
    if isinstance(kind, tuple):
        raise UserError(f"it takes one of {', '.join(kind)}: write {{choice: [{', '.join(kind)}]}}.")

    def draw() -> Any:
        share = stream.random()
        number = low * (high / low) ** share if is_log else low + share * (high - low)
        number = round(number) if is_whole else float(f"{number:.{DIGITS}g}")
        return str(number) if kind is str else number

    return draw
