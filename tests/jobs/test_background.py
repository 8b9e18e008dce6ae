import pytest

from labkit.errors import UserError
from labkit.jobs.watch import BackgroundRun
from labkit.runs import read_run


def test_a_background_run_leaves_the_notebook_free(tmp_path):
    run = BackgroundRun("dlrm", tmp_path, data="synthetic-small", precision="fp32", max_epochs=100_000, target="none")
    assert read_run(run.folder).status == "running"
    assert run.running
    run.stop()
    assert run.wait()["status"] == "stopped"
    assert not run.running


def test_a_refused_background_run_says_so_where_it_is_waited_for(tmp_path):
    refused = BackgroundRun("dlrm", tmp_path, data="no-such-data")
    with pytest.raises(UserError, match="no-such-data"):
        refused.wait()
    with pytest.raises(UserError, match="no-such-data"):
        refused.folder  # noqa: B018
