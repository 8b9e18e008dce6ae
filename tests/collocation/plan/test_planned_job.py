"""Values of a plan: what they refuse, and what they come without."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError


def test_a_mig_profile_is_written_as_nvidia_smi_lists_it():
    for profile in ("3g.40gb", "1g.5gb", "1c.3g.40gb", "1g.10gb+me", "7G.80GB"):
        assert PlannedJob("a", "dlrm", mig_profile=profile).mig_profile == profile
    for profile in ("3g20gb", "40gb", "3g.40", ""):
        with pytest.raises(UserError, match=r"is no MIG profile: write one such as 3g\.40gb"):
            PlannedJob("a", "dlrm", mig_profile=profile)


@pytest.mark.parametrize("name", ["..", "-x", "a/b", "a b", "", "a" * 61])
def test_a_name_that_no_file_should_have_is_refused(name):
    with pytest.raises(UserError, match="names a file, too"):
        PlannedJob(name, "dlrm")


def test_a_job_comes_back_from_its_data_as_it_was():
    job = PlannedJob("a", "x/train.py", ("a b",), seed=2, folder="x", where="plan.csv, line 2")
    assert PlannedJob.from_dict(json.loads(json.dumps(asdict(job)))) == job


def test_plans_of_scripts_are_read_without_torch_pandas_and_arrow():
    code = (
        "import sys, labkit.collocation.plan.csv_plan, labkit.collocation.plan.yaml_plan as y, "
        f"labkit.collocation.plan.short_form as s; s.parse_jobs({__file__!r} + ' x2'); "
        "print({'torch', 'pandas', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
