"""Mode mig: which job gets which slice, and the layouts that are proposed."""

from dataclasses import replace

import pynvml
import pytest
from fake_gpu_tools import process, refusals, shares, slices_in, write_mig
from fake_nvml import AMPERE, FIRST, PASCAL, SECOND, fake_nvml

from labkit.jobs import DlrmJob
from labkit.launch import PlannedJob

GIB = 2**30
A, B, C = (PlannedJob(name, DlrmJob()) for name in "abc")
ONE, MIXED = ["3g.20gb"], ["1g.5gb", "3g.20gb", "2g.10gb"]  # slices MIG-1, MIG-2, MIG-3


@pytest.fixture
def machine(tmp_path):
    """A GPU with these instances."""

    def machine(instances, on=True, **how):
        return fake_nvml(*AMPERE, mig=slices_in(write_mig(tmp_path / "mig", on=on, instances=instances)), **how)

    return machine


def slices(jobs, library, **more):
    found = shares("mig", jobs, library, device="0", **more)
    return {name: share.environment["CUDA_VISIBLE_DEVICES"] for name, share in found.items()}


@pytest.mark.parametrize(
    ("jobs", "needs", "expected"),
    [
        ([A], {}, ["MIG-1"]),  # the smallest
        ([A, B, C], {"a": GIB, "b": 12 * GIB, "c": 6 * GIB}, ["MIG-1", "MIG-2", "MIG-3"]),
        ([A, replace(B, mig_profile="1g.5gb")], {}, ["MIG-3", "MIG-1"]),
        ([replace(A, mig_profile="3g.20gb"), B], {"b": 6 * GIB}, ["MIG-2", "MIG-3"]),
        ([A, replace(B, device="MIG-1")], {}, ["MIG-3", "MIG-1"]),
        # what is asked for counts instead of the estimate
        ([replace(A, memory_bytes=6 * GIB)], {"a": 12 * GIB}, ["MIG-3"]),
    ],
)
def test_each_job_gets_the_smallest_free_slice_that_fits_and_none_is_given_twice(jobs, needs, expected, machine):
    assert list(slices(jobs, machine(MIXED), needs=needs).values()) == expected


def test_a_slice_in_use_is_not_given(machine):
    library = machine(MIXED, computing={"MIG-1": [process(1)]})
    assert slices([A], library) == {"a": "MIG-3"}
    assert "MIG-1 is used by someone else" in dict(refusals("mig", [A, B, C], library, "0"))["c"]


SMI = f"sudo nvidia-smi mig -i {FIRST}"
OF_1G = replace(A, mig_profile="1g.5gb")


@pytest.mark.parametrize(
    ("instances", "jobs", "needs", "parts"),
    [
        # in addition to the one there is
        (ONE, [A, B, C], {"a": GIB, "b": GIB, "c": GIB}, [
            "there is no free slice with 1 GiB for b (slices: 3g.20gb with 19.5 GiB; 1 given to other jobs)",
            "for c", f"`{SMI} -cgi 2g.10gb,2g.10gb -C`", f"`{SMI} -dci -gi IDS && {SMI} -dgi -gi IDS`",
        ]),
        # the largest equal slices that fit
        ([], [A], {}, ["-cgi 7g.40gb -C"]),
        ([], [A, B], {}, ["-cgi 3g.20gb,3g.20gb -C"]),
        ([], [A, B, C], {"a": 8 * GIB}, ["-cgi 2g.10gb,2g.10gb,2g.10gb -C"]),
        ([], [OF_1G, B], {}, ["the jobs want slices that differ (1g.5gb, None)"]),
        ([], [A, B], {"b": 30 * GIB}, ["no layout of this GPU has an equal slice for each job; it offers 1g.10gb, 1g"]),
        ([], [], {}, ["has no slice yet"]),
        (MIXED, [replace(A, mig_profile="3g.40gb")], {}, ["no free slice of profile 3g.40gb for a (slices: 1g.5gb"]),
    ],
)  # fmt: skip
def test_what_no_slice_can_give_is_refused_with_what_there_is_and_a_layout(machine, instances, jobs, needs, parts):
    reported = "\n".join(reason for _, reason in refusals("mig", jobs, machine(instances), "0", needs=needs))
    assert [part for part in parts if part not in reported] == []


@pytest.mark.parametrize(
    ("on", "device", "words"),
    [
        (None, "0", "has no MIG (not supported on this GPU (nvmlDeviceGetMigMode))"),
        (False, "0", f"its administrator can while no process uses the GPU, with `sudo nvidia-smi -i {FIRST}"),
        (True, "1", f"MIG is off on NVIDIA A100-SXM4-40GB {SECOND}"),
    ],
)
def test_without_mig_the_mode_is_refused(machine, on, device, words):
    library = fake_nvml(*PASCAL) if on is None else machine(MIXED, on=on)
    ((name, reason),) = refusals("mig", [A, B], library, device)
    assert name is None and words in reason


def test_where_only_administrators_know_what_is_free_no_layout_is_proposed(machine):
    library = machine(ONE, fails={"nvmlDeviceGetGpuInstanceRemainingCapacity": pynvml.NVML_ERROR_NO_PERMISSION})
    refused = refusals("mig", [A, B], library, "0")
    assert f"`{SMI} -lgip` lists it" in refused[-1][1]
