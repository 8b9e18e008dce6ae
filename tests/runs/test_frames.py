import pandas as pd

from labkit.runs.frames import Series, add_setting


def of(**settings):
    return {"budget": "gpu", "host": "h", "device": None, "preset": "tour", **settings}


def labels(*settings):
    told = {"run": range(len(settings)), "job": "dlrm", "budget": "gpu", "provenance": "measured", "metric": "auc"}
    runs = pd.DataFrame(told | {"settings": list(settings)})
    add_setting(runs)
    return [Series.of(run).label for run in runs.to_dict("records")]


def test_runs_that_differ_by_seed_alone_keep_the_name_of_their_budget():
    assert labels(of(lr=0.1), of(lr=0.1)) == ["gpu", "gpu"]


def test_runs_of_two_kinds_of_gpu_or_two_machines_are_never_of_one_series():
    assert labels(of(device="A40"), of(device="V100")) == ["gpu · A40", "gpu · V100"]
    assert labels(of(host="a"), of(host="b")) == ["gpu · a", "gpu · b"]


def test_settings_are_named_among_the_runs_of_one_place():
    assert labels(of(lr=0.1), of(lr=0.2), of(device="A40", lr=0.3)) == [
        "gpu · None · lr 0.1", "gpu · None · lr 0.2", "gpu · A40",
    ]  # fmt: skip
