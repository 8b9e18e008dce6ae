"""The largest batch is found under a cap of memory that binds, by runs that really run out of it."""

import pytest

from labkit.errors import UserError
from labkit_course.apparatus import largest_batch, memory_held
from labkit_course.apparatus.memory import HEADROOM, tried_sizes

MIB_A_SAMPLE = 16
SCRIPT = f"""
import argparse
import time
import labkit

flags = argparse.ArgumentParser()
flags.add_argument("--batch-size", type=int)
size = flags.parse_args().batch_size
if size == 13:
    raise ValueError("unlucky")
with labkit.Run("made") as run:
    kept = b"x" * (size * {MIB_A_SAMPLE} << 20)
    run.step(1.0, samples=size)
    time.sleep(0.3)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.parametrize("largest", [*range(32, 160, 7), 400, 1000])
def test_doubling_and_halving_come_as_near_as_asked(largest):
    tried = tried_sizes(lambda size: size <= largest, first=32, most=400, step=8)
    found = max(size for size, fits in tried.items() if fits)
    assert found <= min(largest, 400) < found + 8 and max(tried) <= 400
    assert tried_sizes(lambda size: False, first=32, most=400, step=8) == {32: False}


def test_a_batch_is_found_that_the_budget_holds_and_the_next_it_does_not(script):
    least = memory_held(script, batch_size=1)
    most = memory_held(script, batch_size=5)
    assert most - least == pytest.approx(4 * MIB_A_SAMPLE << 20, rel=0.1)  # what else a process holds varies
    budget_mib = (least + (9 * MIB_A_SAMPLE << 20)) * HEADROOM // (HEADROOM - 1) >> 20
    tried = largest_batch(script, f"cores=1,memory={budget_mib}MiB", first=8, most=16)
    found = max(size for size, fits in tried.items() if fits)
    assert found in (8, 9, 10, 11)  # 10, but for a tenth
    assert not tried[found + 1]


def test_a_budget_that_holds_none_and_a_job_that_fails_say_so(script):
    with pytest.raises(UserError, match="does not hold a batch of 64: give it more memory"):
        largest_batch(script, "cores=1,memory=512MiB", first=64, most=64)
    with pytest.raises(Exception, match="unlucky"):
        largest_batch(script, "cores=1,memory=512MiB", first=13, most=13)
