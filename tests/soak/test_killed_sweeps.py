"""A sweep of 200 cells, killed 20 times at moments drawn at random: each cell ends exactly once, nothing is left."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest
from processes import wait_for

from labkit.launch import read_sweep
from labkit.launch.sweep import read_states
from labkit.runs import readable_runs, run_folders

CELLS, KILLS = 200, 20
SCRIPT = """
import argparse, labkit
flags = argparse.ArgumentParser()
flags.add_argument("--x", type=int)
x = flags.parse_args().x
with labkit.Run("light", config={"x": x}) as run:
    for _ in range(3):
        run.step(0.5, samples=10)
    run.log(y=2 * x)
"""

pytestmark = [
    pytest.mark.skipif("LABKIT_SOAK" not in os.environ, reason="takes a quarter of an hour: `make soak`"),
    pytest.mark.skipif(sys.platform == "win32", reason="kills processes by signals"),
    pytest.mark.timeout(3600),
]


def test_a_killed_sweep_goes_on_until_each_cell_has_ended_once(tmp_path):
    (tmp_path / "light.py").write_text(SCRIPT)
    file, runs, chance = tmp_path / "s.yaml", tmp_path / "runs", random.Random(int(os.environ["LABKIT_SOAK"][0]))
    file.write_text(f"script: light.py\ngrid: {{x: {[*range(CELLS)]}}}\nbudget: one-core\n")
    command = [sys.executable, "-m", "labkit", "sweep", str(file), "--runs-dir", str(runs)]
    began = time.monotonic()

    def done():
        return sum(part.status == "done" for part in read_states("s", runs).parts.values())

    moments = sorted(chance.sample(range(CELLS), KILLS))
    for moment in moments:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_for_more(process, lambda least=moment: done() >= least)
        time.sleep(chance.uniform(0, 3))  # the moment is what is drawn
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    found = [record for _, record in readable_runs(run_folders(runs))]
    results = Counter(record.config["sweep"]["cell"] for record in found if record.status == "done")
    assert len(results) == CELLS and set(results.values()) == {1}
    frame = read_sweep(file, runs)
    assert (frame["y"] == 2 * frame["x"]).all() and (frame["state"] == "done").all()
    wait_for(lambda: not [each for each in psutil.process_iter() if str(runs) in " ".join(_words(each))])
    statuses = Counter(record.status for record in found)
    told = f"{CELLS} cells, {KILLS} kills, {time.monotonic() - began:.0f} s; runs: {dict(statuses)}"
    print(told, process.stdout[-200:])


def wait_for_more(process, condition):
    """Wait for a sweep to come so far; longer than `wait_for` does."""
    while not condition():
        assert process.poll() is None, process.communicate()[0].decode()
        time.sleep(0.2)


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []
