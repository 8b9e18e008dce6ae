"""MLflow's runs as run folders, and ours in MLflow; radT's runs, which it keeps there.

As a program it sends a run to MLflow while that goes on; `labkit.tracking.forward` is the run's side.
"""

import contextlib
import json
import math
import os
import posixpath
import re
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np

from labkit import UserError, process, runs
from labkit.bridges import exports
from labkit.bridges.logged import Logged, Point, clean
from labkit.bridges.sources import copied_database, library

STATUS: dict[str, runs.Status] = {"FINISHED": "done", "FAILED": "failed", "KILLED": "stopped"}
"""Of MLflow's; a run that it calls running, or scheduled, is taken as cut off"""
RUN_ID, ABOUT, SENT = "labkit.run_id", "labkit.about", "labkit.sent"
"""Tags of a run that was exported: its id, what MLflow has no place for, and how far it was sent"""
BATCH, PARAMS, LONGEST_PARAM = 1000, 100, 500
"""Points and parameters of a request, and characters of a parameter, that every server takes"""
RADT = re.compile(r"system/(?:system/)?(SMI|DCGMI|TOP|Free|iostat|PS) - |system/(?:SMI|DCGMI|TOP)")
FORMS = "an SQLite file such as mlflow.db, a folder mlruns, or an address such as http://127.0.0.1:5000"
"""What can be read, for errors"""
EVERY_S, LONGEST_S = 5.0, 60.0
"""Seconds between two looks for new parts, and at most while the server is away"""


def read(path: str) -> Iterator[Logged]:
    """The runs of MLflow at a path or an address, experiment after experiment."""
    with _opened(path) as client:
        tool = f"MLflow {library('mlflow', 'mlflow').__version__}"
        for experiment in _pages(lambda token: client.search_experiments(page_token=token)):
            ids = [experiment.experiment_id]
            for run in _pages(lambda token, ids=ids: client.search_runs(ids, page_token=token)):
                yield _logged(client, run, experiment.name, path, tool)


def _logged(client: Any, run: Any, experiment: str, path: str, tool: str) -> Logged:
    info, tags = run.info, run.data.tags
    is_radt = any(RADT.match(key) for key in run.data.metrics)
    logged = Logged(
        tool=f"radT ({tool})" if is_radt else tool,
        id=info.run_id,
        name=info.run_name or info.run_id,
        group=experiment,
        source=path,
        status=STATUS.get(info.status, "interrupted"),
        began_ns=None if info.start_time is None else info.start_time * 10**6,
        ended_ns=None if info.end_time is None else info.end_time * 10**6,
        settings=dict(run.data.params),
        in_order=False,
    )
    with contextlib.suppress(ValueError):
        logged.take_ours(json.loads(tags.get(ABOUT, "null")))
    for key in run.data.metrics:
        points = [
            Point(key, each.step, each.timestamp * 10**6, _whole(each.value))
            for each in client.get_metric_history(info.run_id, key)
        ]
        # "System/..." is a name that a script may have given
        (logged.system if key.startswith("system/") else logged.points).extend(points)
    for each in run.inputs.dataset_inputs[:1] if run.inputs else ():
        logged.data = {"name": each.dataset.name, "fingerprint": each.dataset.digest}
    if files := _artefacts(info.artifact_uri):
        logged.left_out["artefacts"] = files
    if outputs := len(getattr(run.outputs, "model_outputs", None) or ()):
        logged.left_out["logged models"] = outputs
    if parent := tags.get("mlflow.parentRunId"):
        logged.notes.append(f"a child of run {parent}")
    return logged


def _whole(value: float) -> float:
    """The value; MLflow's databases keep infinity as the largest number there is."""
    return math.copysign(math.inf, value) if abs(value) == sys.float_info.max else value


def _artefacts(uri: str | None) -> int:
    """The number of files in a run's folder of artefacts, if that is on this machine."""
    parts = urlparse(uri or "")
    folder = Path(unquote(parts.path))
    is_here = parts.scheme in ("", "file") and bool(parts.path) and folder.is_dir()
    return sum(path.is_file() for path in folder.rglob("*")) if is_here else 0


def _pages(ask: Callable[[str | None], Any]) -> Iterator[Any]:
    yield from (page := ask(None))
    while page.token:
        yield from (page := ask(page.token))


@contextlib.contextmanager
def _opened(path: str) -> Generator[Any]:
    """A client of what is at the path; a database is copied first, and an older one brought up to date there."""
    library("mlflow", "mlflow")
    with contextlib.ExitStack() as stack:
        uri = path
        if "://" not in path:
            place = Path(path)
            if not place.exists():
                raise UserError(f"{path} does not exist: give {FORMS}.")
            if place.is_dir():
                place = next(filter(Path.is_file, (place / "mlflow.db", place / "mlruns.db")), place)
            if place.is_dir():
                place = place / "mlruns" if (place / "mlruns").is_dir() else place
                if not any(place.glob("*/meta.yaml")):
                    raise UserError(f"{path} has no runs of MLflow: give {FORMS}.")
                os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
                uri = place.absolute().as_uri()
            else:
                tables = {"runs", "experiments", "metrics", "params"}
                uri = f"sqlite:///{stack.enter_context(copied_database(place, tables, 'MLflow'))}"
                _bring_up_to_date(uri, path)
        with _refusals(path):
            yield _client(uri)


def _client(uri: str) -> Any:
    import logging

    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    return library("mlflow", "mlflow").MlflowClient(tracking_uri=uri)


@contextlib.contextmanager
def _refusals(path: str) -> Generator[None]:
    """Errors of MLflow's, and of its database, as those of a user."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise UserError(f"{path}: MLflow refused this ({first}): check the address and its server.") from error


def _make(database: Path) -> None:
    """Make a database that is not there yet, whole or not at all: MLflow never opens a half made one again."""
    if database.exists():
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    temporary = runs.temporary_of(database)
    try:
        _client(f"sqlite:///{temporary}")
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(temporary, database)
    finally:
        temporary.unlink(missing_ok=True)


def _bring_up_to_date(uri: str, path: str) -> None:
    """Upgrade the copy of a database that an older MLflow wrote; refuse one that a newer MLflow wrote."""
    import mlflow
    import sqlalchemy
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from mlflow.store.db import utils

    engine = sqlalchemy.create_engine(uri)
    try:
        with engine.connect() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
        scripts = ScriptDirectory.from_config(utils._get_alembic_config(uri))
        if found == scripts.get_current_head():
            return
        if found is not None and found not in {each.revision for each in scripts.walk_revisions()}:
            raise UserError(
                f"{path}: a newer MLflow wrote this database (schema {found}), and the one installed here, "
                f"{mlflow.__version__}, reads up to {scripts.get_current_head()}: run `pip install --upgrade mlflow`, "
                "or import its runs where they were logged."
            )
        utils._upgrade_db(engine)
    finally:
        engine.dispose()


class MlflowExport:
    """Sends one run to MLflow, and later what has come since; what was sent stays known there, in tags of the run."""

    def __init__(self, uri: str, folder: Path):
        """Find the run in MLflow, or make it there.

        Args:
            uri: address of a server or of a database; or the path of an SQLite file.
            folder: the run's folder.
        """
        library("mlflow", "mlflow")
        is_file = "://" not in uri or uri.startswith("sqlite:///")
        database = Path(uri.removeprefix("sqlite:///")).absolute() if is_file else None
        self._uri, self.folder = uri, folder
        self.renamed: set[str] = set()
        """Metrics whose names MLflow does not take"""
        self.empty = 0
        """Samples without a value, which MLflow cannot hold"""
        with _refusals(uri):
            if database is not None:
                _make(database)
            self._client = _client(uri if database is None else f"sqlite:///{database}")
            self.run = self._find(runs.read_run(folder), None if database is None else database.parent / "mlartifacts")
        sent = json.loads(self.run.data.tags.get(SENT, "{}"))
        self._part, self._sample_ns = int(sent.get("part", 0)), int(sent.get("time_ns", 0))

    def _find(self, record: runs.RunRecord, artefacts: Path | None) -> Any:
        """The run in MLflow, in an experiment with the name of its job."""
        group = clean(record.config.get("job", record.name), 200)
        experiment = self._client.get_experiment_by_name(group)
        where = artefacts and artefacts.as_uri()
        own = experiment.experiment_id if experiment else self._client.create_experiment(group, artifact_location=where)
        if found := self._client.search_runs([own], f"tags.`{RUN_ID}` = '{record.id}'", max_results=1):
            return found[0]
        tags = {RUN_ID: record.id, "mlflow.runName": record.id}
        return self._client.create_run(own, start_time=runs.moment_ns(record.started_at) // 10**6, tags=tags)

    def send(self) -> int:
        """Send what has come since. Returns the number of points.

        Raises:
            UserError: MLflow does not take it; what it took until then stays.
        """
        record, count = runs.read_run(self.folder), 0
        moments: list[tuple[int, int]] = []  # of all points, for the steps of counters
        with _refusals(self._uri):
            self._describe(record)
            for part, rows in exports.rows(self.folder):
                moments += [(row.time_ns, row.step or 0) for row in rows]
                if part >= self._part:
                    count += self._send(rows, {"part": part + 1, "time_ns": self._sample_ns})
                    self._part = part + 1
            times, steps = (np.array(each, np.int64) for each in zip(*sorted(set(moments)) or [(0, 0)], strict=True))
            for counters in exports.counters(self.folder, since_ns=self._sample_ns):
                at = np.maximum(np.searchsorted(times, [each.time_ns for each in counters], side="right") - 1, 0)
                placed = zip(counters, steps[at].tolist(), strict=True)
                known = [each._replace(step=step) for each, step in placed if each.value == each.value]
                self.empty += len(counters) - len(known)
                self._sample_ns = max(self._sample_ns, *(each.time_ns for each in counters))
                count += self._send(known, {"part": self._part, "time_ns": self._sample_ns})
            self._end(record)
        return count

    def _describe(self, record: runs.RunRecord) -> None:
        """The settings, which MLflow never changes, and a tag with what it has no place for."""
        from mlflow.entities import Param, RunTag

        texts = {self._key(name): exports.text_of(value) for name, value in exports.settings(record).items()}
        new = [Param(name, text[:LONGEST_PARAM]) for name, text in texts.items() if name not in self.run.data.params]
        about = json.dumps(exports.about(self.folder, record))
        tags = [] if self.run.data.tags.get(ABOUT) == about else [RunTag(ABOUT, about)]
        if new or tags:
            for first in range(0, max(len(new), 1), PARAMS):
                self._client.log_batch(self.run.info.run_id, params=new[first : first + PARAMS], tags=tags)
            self.run = self._client.get_run(self.run.info.run_id)

    def _send(self, rows: list[Point], sent: dict[str, int]) -> int:
        """Send points, and with the last of them how far that is."""
        from mlflow.entities import Metric, RunTag

        metrics = [Metric(self._key(row.name), row.value, row.time_ns // 10**6, row.step or 0) for row in rows]
        for first in range(0, max(len(metrics), 1), BATCH):
            is_last = first + BATCH >= len(metrics)
            tags = [RunTag(SENT, json.dumps(sent))] if is_last else []
            self._client.log_batch(self.run.info.run_id, metrics=metrics[first : first + BATCH], tags=tags)
        return len(metrics)

    def _end(self, record: runs.RunRecord) -> None:
        states: dict[str, str] = {own: theirs for theirs, own in STATUS.items()} | {"interrupted": "KILLED"}
        status, now = states.get(record.status, "RUNNING"), self.run.info.status
        if status == now:
            return
        if status == "RUNNING":
            self._client.update_run(self.run.info.run_id, status=status)  # it was resumed
        else:
            ended_ms = runs.moment_ns(record.ended_at) // 10**6 if record.ended_at else None
            self._client.set_terminated(self.run.info.run_id, status, ended_ms)
        self.run = self._client.get_run(self.run.info.run_id)

    def _key(self, name: str) -> str:
        """A name that MLflow takes; a changed one ends in digits of its own, so that no two become one."""
        safe = re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)[:240]
        if posixpath.normpath(safe) != safe or safe.startswith(("..", "/")):
            safe = safe.replace("/", "_").strip(".") or "_"
        if safe != name:
            self.renamed.add(name[:80])
            safe = f"{safe}-{sha256(name.encode()).hexdigest()[:6]}"
        return safe


def forward(parent: process.Parent, folder: str, uri: str) -> None:
    """Send the run in `folder` while it goes on, until the parent asks to end, and then what is left."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(19)  # the training goes first
    # MLflow's client would try for minutes, and a request that fails is sent with the next look
    os.environ.update(MLFLOW_HTTP_REQUEST_MAX_RETRIES="0", MLFLOW_HTTP_REQUEST_TIMEOUT="5")
    closed = threading.Event()
    parent.listen(at_end=closed.set)
    export, wait_s, was_away = None, EVERY_S, False
    while True:
        ended = closed.is_set()  # if so, this look is the last
        try:
            export = export or MlflowExport(uri, Path(folder))
            export.send()
            away, wait_s = "", EVERY_S
        except Exception as error:  # whatever a server, a proxy or a library does must not end the forwarding
            away, wait_s = (str(error).splitlines() or [type(error).__name__])[0][:200], min(2 * wait_s, LONGEST_S)
        if ended or bool(away) != was_away:
            parent.tell("forwarded", away=away, ended=ended)
            was_away = bool(away)
        if ended:
            return
        closed.wait(wait_s)


if __name__ == "__main__":
    _parent = process.Parent()
    forward(_parent, **_parent.content)
