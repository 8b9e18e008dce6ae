"""Nsight Compute: its command and its refusal, with fake tools on PATH."""

import pytest
from fake_tools import fake_tool

from labkit.errors import UserError
from labkit.hardware.tools import Tool
from labkit.profiling.tools import ncu
from labkit.profiling.tools.ncu import ncu_command, why_no_ncu
from labkit.profiling.tools.run_tool import run_tool

FORBIDDEN = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
)


FAKE = 'while [ "$1" != --log-file ]; do shift; done\ncp {folder}/of_elsewhere "$2"\nexit {status}'


def test_its_command_looks_at_what_the_program_launches_once_it_says_so(tmp_path):
    command = ncu_command(tmp_path / "x.ncu-rep", ["python", "train.py"])
    assert command[-2:] == ["python", "train.py"]
    told = {name: command[command.index(name) + 1] for name in command if name.startswith("--")}
    assert (told["--profile-from-start"], told["--target-processes"]) == ("off", "all")
    assert told["--export"] == str(tmp_path / "x.ncu-rep")


@pytest.mark.parametrize("status", [0, 1])
def test_counters_that_are_forbidden_are_told_with_how_to_get_them(tmp_path, monkeypatch, status):
    (tmp_path / "of_elsewhere").write_text(FORBIDDEN)
    fake_tool("ncu", FAKE.format(folder=tmp_path, status=status), tmp_path / "bin", monkeypatch)
    output = tmp_path / "x.ncu-rep"
    with pytest.raises(UserError) as told:
        run_tool(ncu_command(output, ["x"]), refusals=ncu.REFUSALS, log=ncu.log_of(output), show=False)
    for step in ("modprobe.d", "restart", "as root", "--cap-add=SYS_ADMIN", "developer.nvidia.com/ERR_NVGPUCTRPERM"):
        assert step in str(told.value)


@pytest.mark.parametrize(
    ("setting", "user", "capable", "is_told"),
    [("1", 1000, False, True), ("1", 0, True, False), ("1", 0, False, True), ("0", 1000, False, False),
     (None, 1000, False, False)],
)  # fmt: skip
def test_a_driver_that_forbids_it_is_known_before(tmp_path, monkeypatch, setting, user, capable, is_told):
    monkeypatch.setattr(ncu, "find_profiler", lambda name: Tool("ncu", "/x/ncu", "2025.1", works=True))
    monkeypatch.setattr(ncu, "DRIVER_SETTINGS", tmp_path / "params")
    monkeypatch.setattr(ncu.os, "geteuid", lambda: user)
    monkeypatch.setattr(ncu, "has_capability", lambda *names: capable)
    if setting:
        (tmp_path / "params").write_text(f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {setting}\n")
    assert ("NVreg_RestrictProfilingToAdminUsers=0" in (why_no_ncu() or "")) == is_told


def test_a_missing_ncu_is_told_with_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "ncu is not on PATH. It comes with the CUDA toolkit" in why_no_ncu()
