import pytest

from labkit.collocation.memory.counted import counted_bytes
from labkit.collocation.memory.formula import formula
from labkit.collocation.memory.score import METHODS, PROCESS, estimates, score
from labkit.errors import UserError
from labkit.jobs.command import as_flags, job_command
from labkit.jobs.plain_step import plain_step

PLAIN = {"kernels": "plain", "precision": "fp32"}
JOBS = [
    ("dlrm", {"data": "synthetic-small", "batch_size": 256}),
    ("dlrm", {"data": "synthetic-small", "preset": "kaggle", "batch_size": 8192}),
    ("speech", {"batch_size": 16}),
]


@pytest.mark.parametrize(("job", "settings"), JOBS, ids=lambda each: str(each))
def test_the_formula_is_within_a_third_of_what_all_tensors_took(job, settings):
    # what operators take while they run is not in it, and a random batch need not have the longest utterance
    measured = counted_bytes(job_command(job, **settings, **PLAIN))
    assert 2 / 3 < sum(formula(plain_step(job, as_flags(settings | PLAIN))).values()) / measured < 4 / 3


def test_the_optimiser_decides_how_much_state_there_is():
    def terms(optimiser):
        return formula(plain_step("dlrm", as_flags({"data": "synthetic-small", "optimiser": optimiser, "lr": 0.1})))

    assert terms("sgd")["optimiser"] == 0
    assert terms("adagrad")["optimiser"] == terms("sgd")["parameters"]
    assert terms("adam")["optimiser"] == 2 * terms("sgd")["parameters"]


def test_methods_stand_beside_what_was_measured():
    rows = score([("dlrm", {"data": "synthetic-small", **PLAIN})]).set_index("method")
    assert list(rows.index) == [*METHODS, PROCESS]
    # a gradient of every parameter for every sample, and no table's optimiser state
    assert rows["error_%"]["Horus' formula"] > 1000
    assert rows["error_%"]["torch's tracker"] < -10
    assert abs(rows["error_%"]["formula"]) < 33
    assert rows["measured"][PROCESS] > rows["measured"]["formula"]
    with pytest.raises(UserError, match="plain"):
        estimates("dlrm", data="synthetic-small", precision="fp32")
