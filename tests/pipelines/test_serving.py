"""Serving: an open loop counts what waits, micro-batches answer each its own, and a server leaves nothing behind."""

import asyncio

import numpy as np
import psutil
import pytest

from labkit import UserError
from labkit.pipelines import open_loop, serving
from labkit.pipelines.load import poisson_times, send_open_loop
from labkit.pipelines.serving import MOST, MicroBatches, OneByOne
from labkit_course.lab import from_lab

simulated = from_lab("70", "simulated")  # runs a coroutine on a clock that jumps to the next event


def test_an_open_loop_shows_a_stall_to_each_request_that_was_planned_in_it():
    async def main():
        lock = asyncio.Lock()

        async def send(number):
            async with lock:  # a server that answers one at a time, in 10 ms, and stands still for 2 s once
                await asyncio.sleep(2.0 if number == 10 else 0.01)

        return await send_open_loop(send, np.arange(100) * 0.05)

    latencies, late = np.array(simulated(main())).T
    assert late.max() == pytest.approx(0, abs=1e-9)
    assert latencies[:10] == pytest.approx(np.full(10, 0.01))
    assert latencies[10:20] == pytest.approx(2.0 - 0.04 * np.arange(10))  # each waits for what is left, and its queue
    assert (latencies > 0.1).sum() > 45 and latencies[-1] == pytest.approx(0.01)


def test_a_micro_batch_is_predicted_once_and_each_request_gets_its_own():
    sizes = []

    def predict(rows):
        sizes.append(len(rows))
        return rows[:, 0] * 2

    async def main():
        batches = MicroBatches(predict, 0.004)

        async def ask(number, at):
            await asyncio.sleep(at)
            answer = await batches.predict(np.array([number], "float32"))
            return answer, asyncio.get_running_loop().time()

        return await asyncio.gather(*(ask(n, at) for n, at in enumerate((0.0, 0.001, 0.003, 0.0041, 0.02))))

    found = simulated(main())
    assert [answer for answer, _ in found] == [0, 2, 4, 6, 8]
    assert sizes == [3, 1, 1]
    assert [when for _, when in found] == pytest.approx([0.004, 0.004, 0.004, 0.0081, 0.024])


def test_a_full_batch_does_not_wait():
    async def main():
        batches = MicroBatches(lambda rows: rows[:, 0], 5.0)
        await asyncio.gather(*(batches.predict(np.zeros(1, "float32")) for _ in range(MOST)))
        full = asyncio.get_running_loop().time()
        await batches.predict(np.zeros(1, "float32"))  # the timer of the full batch ends first, and finds this one
        return full

    assert simulated(main()) == 0.0


def test_an_error_of_the_model_reaches_every_request_of_its_batch():
    async def main():
        batches = MicroBatches(lambda rows: rows / None, 0.001)
        requests = (batches.predict(np.zeros(1)) for _ in range(3))
        return await asyncio.gather(*requests, return_exceptions=True)

    assert [type(each) for each in simulated(main())] == [TypeError] * 3


def test_planned_times_do_not_depend_on_answers_and_have_the_rate():
    times = poisson_times(200, 50, seed=1)
    assert times[0] == 0 and (np.diff(times) > 0).all()
    assert len(times) / times[-1] == pytest.approx(200, rel=0.05)  # 10,000 gaps: 1 % standard error
    assert np.diff(times).std() * 200 == pytest.approx(1, rel=0.05)


def add_up(rows):
    if (rows < 0).any():
        raise ValueError("no negative numbers")
    return rows.sum(1)


def test_a_server_answers_and_leaves_no_process():
    pytest.importorskip("tornado", reason="serving needs tornado")
    pytest.importorskip("cloudpickle", reason="serving needs cloudpickle")
    rows = np.ones((4, 3), "float32")

    class Written(OneByOne):  # as in a notebook, whose classes no other process can import
        async def predict(self, row):
            return await super().predict(row) + 1

    with serving(add_up, {"alone": Written, "batched": MicroBatches}) as port:
        load = open_loop(port, rows, 200, 0.2, late_s=np.inf)
        assert load.row()["answered_per_s"] > 0 and len(load.latencies_s) == 40
        assert (load.latencies_s >= load.late_s).all()
        servers = [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]
        assert len(servers) == 1
        with (
            pytest.raises(UserError, match=f"port {port} of this machine is taken") as refused,
            serving(add_up, port=port),
        ):
            pass
        assert refused.value.field == "port"
        assert len(open_loop(port, rows, 100, 0.1, way="batched", late_s=np.inf).latencies_s) == 10
        with pytest.raises(UserError, match=r"the server answered .* 404"):
            open_loop(port, rows, 50, 0.1, way="other", late_s=np.inf)
        with pytest.raises(UserError, match=r"the server answered .* 500"):
            open_loop(port, -rows, 50, 0.1, late_s=np.inf)
        with pytest.raises(UserError, match="the load generator itself was up to") as late:
            open_loop(port, rows, 50, 0.1, late_s=-1.0)
        assert late.value.field == "late_s"
    assert not servers[0].is_running()
    with pytest.raises(UserError, match=f"the server on port {port} is gone"):
        open_loop(port, rows, 50, 0.1)


def test_a_load_without_a_rate_is_refused():
    with pytest.raises(UserError, match="numbers above 0"):
        open_loop(1, np.ones((1, 1)), 0, 1)
