"""Mode mig: which job gets which slice, and the layouts that are proposed."""

from dataclasses import replace

import pytest
from fake_gpu_tools import FIRST, PROFILES, SECOND, fake_nvml, process, write_mig

from labkit.collocation.modes.choice import mode_refusals, mode_shares
from labkit.collocation.modes.device_choice import find_device
from labkit.collocation.modes.mig import fitting_layout, mig_profiles
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml

GIB = 2**30
A, B, C = (PlannedJob(name, "dlrm") for name in "abc")
MIXED = [("1g.5gb", 6), ("3g.20gb", 0), ("2g.10gb", 4)]  # slices MIG-1, MIG-2, MIG-3


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def state(tmp_path):
    return write_mig(tmp_path / "mig", instances=MIXED)


def refusals(jobs, library, device="0", **more):
    devices = get_devices(Nvml(library))
    return mode_refusals("mig", jobs, find_device(device, devices), devices, nvml=Nvml(library), **more)


def slices(jobs, library, device="0", **more):
    devices = get_devices(Nvml(library))
    found = mode_shares("mig", jobs, find_device(device, devices), devices, nvml=Nvml(library), **more)
    assert all(share.torch_name == "cuda:0" for share in found.values())
    assert all(share.environment["CUDA_MPS_PIPE_DIRECTORY"] == "/dev/null" for share in found.values())
    return {name: share.environment["CUDA_VISIBLE_DEVICES"] for name, share in found.items()}


@pytest.mark.parametrize(
    ("jobs", "needs", "expected"),
    [
        ([A], {}, ["MIG-1"]),  # the smallest
        ([A, B, C], {"a": GIB, "b": 12 * GIB, "c": 6 * GIB}, ["MIG-1", "MIG-2", "MIG-3"]),
        ([A, B, C], {"a": GIB, "b": GIB, "c": 6 * GIB}, ["MIG-1", "MIG-2", "MIG-3"]),
        ([A, replace(B, mig_profile="1g.5gb")], {}, ["MIG-3", "MIG-1"]),
        ([replace(A, mig_profile="3g.20gb"), B], {"b": 6 * GIB}, ["MIG-2", "MIG-3"]),
        ([A, replace(B, device="MIG-1")], {}, ["MIG-3", "MIG-1"]),
        ([A, replace(B, device="0:1")], {}, ["MIG-1", "MIG-2"]),
        # what is asked for counts instead of the estimate
        ([replace(A, memory_bytes=6 * GIB)], {"a": 12 * GIB}, ["MIG-3"]),
    ],
)
def test_each_job_gets_the_smallest_free_slice_that_fits_and_none_is_given_twice(jobs, needs, expected, state):
    library = fake_nvml("ampere", mig=state)
    assert refusals(jobs, library, needs=needs) == []
    assert list(slices(jobs, library, needs=needs).values()) == expected


def test_a_slice_that_somebody_uses_is_not_given(state):
    library = fake_nvml("ampere", mig=state, computing={"MIG-1": [process(1)]})
    assert slices([A], library) == {"a": "MIG-3"}
    refused = dict(refusals([A, B, C], library))
    assert "MIG-1 is used by someone else" in refused["c"]


def test_more_jobs_than_slices_are_refused_by_name_with_a_layout_for_them(tmp_path):
    state = write_mig(tmp_path / "mig", instances=[("3g.20gb", 0)])
    refused = refusals([A, B, C], fake_nvml("ampere", mig=state), needs={"a": GIB, "b": GIB, "c": GIB})
    assert [name for name, _ in refused] == ["b", "c", None]
    assert "there is no free slice for b (slices: 3g.20gb; 1 given to other jobs)" in refused[0][1]
    # beside the instance that lies in the first four memory slices
    command = f"sudo nvidia-smi mig -i {FIRST} -cgi 1g.10gb:4,1g.10gb:6 -C"
    assert command in refused[2][1]
    assert (
        f"sudo nvidia-smi mig -i {FIRST} -dci -gi IDS && sudo nvidia-smi mig -i {FIRST} -dgi -gi IDS" in refused[2][1]
    )


def test_a_gpu_without_slices_is_refused_with_a_layout(tmp_path):
    library = fake_nvml("ampere", mig=write_mig(tmp_path / "mig"))
    refused = refusals([A, B], library)
    assert [name for name, _ in refused] == ["a", "b", None]
    assert "-cgi 3g.20gb:0,3g.20gb:4 -C" in refused[2][1]
    ((_, reason),) = refusals([], library)
    assert "has no slice yet" in reason


def test_a_profile_that_does_not_exist_is_refused_with_those_that_do(state):
    refused = refusals([replace(A, mig_profile="3g.40gb")], fake_nvml("ampere", mig=state))
    assert refused[0][0] == "a"
    assert "asks for the profile 3g.40gb, which NVIDIA A100-SXM4-40GB MIG 1g.5gb does not have: it has" in refused[0][1]
    assert "7g.40gb" in refused[0][1]
    assert "No other layout is proposed" in refused[1][1]


def test_a_profile_of_which_no_slice_is_free_is_refused(state):
    refused = refusals(
        [replace(A, mig_profile="2g.10gb"), replace(B, mig_profile="2g.10gb")], fake_nvml("ampere", mig=state)
    )
    assert refused[0][0] == "b" and "no free slice of profile 2g.10gb for b" in refused[0][1]


def test_a_job_larger_than_every_slice_is_refused_with_both_sizes(state):
    refused = refusals([A], fake_nvml("ampere", mig=state), needs={"a": 30 * GIB})
    assert refused[0] == ("a", "a needs 30 GiB, and the largest slice has 19.5 GiB")


def test_what_others_instances_leave_is_not_guessed(state):
    refused = refusals([A, B, C, replace(A, name="d")], fake_nvml("ampere", mig=state, administrator=False))
    assert "cannot be told (no permission (nvmlDeviceGetGpuInstances))" in refused[-1][1]
    assert f"sudo nvidia-smi mig -i {FIRST} -lgi" in refused[-1][1]


@pytest.mark.parametrize(
    ("generation", "device", "words"),
    [
        ("pascal", "0", "has no MIG (not supported on this GPU (nvmlDeviceGetMigMode))"),
        (
            "off",
            "0",
            f"never turns it on: its administrator can while nobody uses the GPU, with `sudo nvidia-smi -i {FIRST}",
        ),
        ("ampere", "1", f"MIG is off on NVIDIA A100-SXM4-40GB {SECOND}"),
    ],
)
def test_without_mig_the_mode_is_refused(generation, device, words, tmp_path, state):
    mig = {"pascal": None, "ampere": state, "off": write_mig(tmp_path / "off", on=False)}[generation]
    library = fake_nvml("pascal" if mig is None else "ampere", mig=mig)
    ((name, reason),) = refusals([A, B], library, device=device)
    assert name is None and words in reason


def test_profiles_are_read_with_their_places_and_what_lies_there(state):
    with Nvml(fake_nvml("ampere", mig=state)) as nvml:
        profiles, taken, why = mig_profiles(get_devices(Nvml(fake_nvml("ampere", mig=state)))[1], nvml)
    found = {profile.name: profile for profile in profiles}
    assert set(found) == set(PROFILES)
    assert (found["2g.10gb"].slices, found["2g.10gb"].memory_bytes) == (2, 9856 * 2**20)
    assert found["2g.10gb"].places == ((0, 2), (2, 2), (4, 2))
    assert why is None and sorted(taken) == [(0, 4), (4, 2), (6, 1)]


@pytest.fixture
def profiles(state):
    library = fake_nvml("ampere", mig=state)
    with Nvml(library) as nvml:
        return mig_profiles(get_devices(Nvml(library))[1], nvml)[0]


ANY = (None, 0)


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ([ANY], "7g.40gb:0"),
        ([ANY] * 2, "3g.20gb:0,3g.20gb:4"),
        ([ANY] * 3, "2g.10gb:0,2g.10gb:2,2g.10gb:4"),
        ([ANY] * 7, ",".join(f"1g.5gb:{start}" for start in range(7))),
        ([ANY] * 8, None),
        ([(None, 8 * GIB)] * 4, "1g.10gb:0,1g.10gb:2,1g.10gb:4,1g.10gb:6"),
        ([(None, 8 * GIB)] * 5, None),
        ([(None, 15 * GIB), ANY, ANY], "3g.20gb:4,2g.10gb:0,2g.10gb:2"),
        ([("1g.5gb+me", 0), (None, 12 * GIB)], "4g.20gb:0,1g.5gb+me:4"),
        ([("1g.5gb", 8 * GIB)], None),
        ([(None, 50 * GIB)], None),
    ],
)
def test_a_layout_has_the_largest_equal_slices_that_fit(wishes, expected, profiles):
    for offered in (profiles, profiles[::-1]):
        layout = fitting_layout(FIRST, wishes, offered)
        assert (layout and layout.tuples) == expected


def test_a_layout_leaves_what_lies_there(profiles):
    assert fitting_layout(FIRST, [ANY], profiles, [(0, 4)]).tuples == "3g.20gb:4"
    assert fitting_layout(FIRST, [ANY], profiles, [(0, 8)]) is None
