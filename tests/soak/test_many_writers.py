"""Many writers next to the live server, most of them killed: every finished point is there, and none twice."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from point_writer import read_notes
from processes import DEADLINE_S, served, wait_for

from labkit.runs import query, read_metrics

pytest.importorskip("duckdb", reason="labkit[query] is not installed")
pytest.importorskip("tornado", reason="labkit[live] is not installed")

WRITERS, KILLED, SECONDS, PAUSE_S = (50, 30, 600.0, 5.0) if "LABKIT_SOAK" in os.environ else (6, 3, 6.0, 0.4)
"""`make soak` takes ten minutes."""
COUNTS = "SELECT run, count(*) AS points, count(DISTINCT step) AS steps, max(step) AS last FROM metrics GROUP BY run"


def points_of_server(address: str) -> dict[str, int]:
    """How many points of each run the page shows."""
    start, _, token = address.partition("/?token=")
    with urllib.request.urlopen(f"{start}/events?since=-1&token={token}", timeout=60) as events:
        news = json.loads(events.readline().removeprefix(b"data: "))
    return {row["run"]: row["points"] for row in news["rows"]}


@pytest.mark.timeout(SECONDS + 600)
def test_every_finished_point_is_there_and_none_twice(tmp_path):
    chance, runs, over = random.Random(52), tmp_path / "runs", tmp_path / "over"
    runs.mkdir()
    notes = [tmp_path / f"notes-{number}" for number in range(WRITERS)]

    def start(number: int) -> subprocess.Popen:
        arguments = [runs, number, PAUSE_S, notes[number], over]
        return subprocess.Popen([sys.executable, Path(__file__).with_name("point_writer.py"), *map(str, arguments)])

    with served(runs) as (address, server):
        writers = []
        try:
            for number in range(WRITERS):
                writers.append(start(number))
                if number >= 3:  # four begin at once
                    wait_for(lambda first=notes[number - 3]: read_notes(first)[2])
            wait_for(lambda: all(read_notes(each)[2] for each in notes))
            kills = sorted((chance.uniform(0, 0.8 * SECONDS), number) for number in range(KILLED))
            began = time.monotonic()
            for after_s, number in [*kills, (SECONDS, -1)]:
                while time.monotonic() - began < after_s:
                    look(runs, notes, address)
                if number == -1:
                    break
                assert writers[number].poll() is None, "it is killed while it writes"
                writers[number].kill()
                writers[number].wait()
                if number % 3:  # the others stay as they are
                    writers[number] = start(number)
            wait_for(lambda: all(each.read_text().splitlines()[-1].startswith("written") for each in notes))
            over.touch()
            assert {each.wait(DEADLINE_S) for each in writers} == {0, -9}
        finally:
            for each in writers:
                each.kill()
                each.wait()
        points = {}
        for each in notes:
            folder, resumed, last = read_notes(each)
            rows = read_metrics([folder])
            assert rows["step"].tolist() == list(range(1, len(rows) + 1)) and len(rows) >= last, folder
            assert rows["value"].max() <= resumed and (np.diff(rows["value"]) >= 0).all(), "of the latest attempt"
            points[folder.name] = len(rows)
        wait_for(lambda: points_of_server(address) == points)
        assert server.poll() is None
    assert sum(read_notes(each)[1] for each in notes) == sum(number % 3 > 0 for number in range(KILLED))
    for _ in range(2):  # by the cache of all those queries, and by a new one
        assert query(COUNTS, runs).set_index("run")["points"].to_dict() == points
        shutil.rmtree(runs / ".labkit-store")


def look(runs: Path, notes: list[Path], address: str) -> None:
    """What readers see meanwhile: all that a run had finished before they asked, and nothing twice."""
    finished = {folder.name: (resumed, last) for folder, resumed, last in map(read_notes, notes)}
    found, shown = query(COUNTS, runs).set_index("run"), points_of_server(address)
    assert (found["points"] == found["steps"]).all() and (found["points"] == found["last"]).all()
    now = {folder.name: resumed for folder, resumed, _ in map(read_notes, notes)}
    for name, (resumed, last) in finished.items():
        if now[name] == resumed:  # a resume takes back what was written after its step
            assert found["points"][name] >= last
    assert shown.keys() <= finished.keys()
    time.sleep(0.2)
