"""Nsight Compute: its command, its refusal, and both forms of its table; with fake tools on PATH."""

import pytest
from fake_tools import arguments, fake_tool

from labkit.errors import DataError, UserError
from labkit.hardware.tools import Tool
from labkit.profiling.tools import ncu
from labkit.profiling.tools.ncu import ncu_command, read_ncu_csv, read_ncu_launches, why_no_ncu
from labkit.profiling.tools.run_tool import run_tool

SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
ONE = '"python3","127.0.0.1"'
# Nothing here was measured by labkit. The form of `--page raw`: units in a row of their own, thousands with commas, and
# between the rows what the program prints. The numbers are made up.
RAW = f"""\
==PROF== Connected to process 4711 (/usr/bin/python3)
==PROF== Profiling "gemm" - 0: 0%....50%....100% - 2 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"{DRAM}","gpu__time_duration.sum","{SM}","{WARPS}"
"","","","","","","","","","","","%","ns","%","%"
loss "0.5" after 1 step
"0","4711",{ONE},"gemm(float *, int)","1","7","(128, 1, 1)","(80, 1, 1)","0","8.0","80.50","3,000,000","30.00","50.0"
"1","4711",{ONE},"gemm(float *, int)","1","7","(128, 1, 1)","(80, 1, 1)","0","8.0","40.50","1,000,000","10.00","50.0"
"2","4711",{ONE},"norm","1","7","(256, 1, 1)","(1, 1, 1)","0","8.0","n/a","500","1.00","25.5"
==PROF== Disconnected from process 4711
"""
# The form of `--page details`, whose rows end before the columns for advice. The numbers of the first launch are those
# of a GPU of capability 10.0 in the tests of cublaslt_gemm of github.com/microsoft/superbenchmark; the second one is
# made up, with the units that ncu writes without --print-units base.
GEMM = '"371693","cublaslt_gemm","127.0.0.1","cutlass3x_sm100","1","7","(384, 1, 1)","(9, 32, 1)","0","10.0"'
DETAILS = f"""\
==PROF== Connected to process 371693 (/opt/superbench/bin/cublaslt_gemm)
2208    2048    5608    0       358.154755      141.598150
==PROF== Disconnected from process 371693
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"Section Name","Metric Name","Metric Unit","Metric Value",\
"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"
"0",{GEMM},"GPU Speed Of Light Throughput","DRAM Frequency","hz","3995313115.40",
"0",{GEMM},"GPU Speed Of Light Throughput","DRAM Throughput","%","0.74",
"0",{GEMM},"GPU Speed Of Light Throughput","Duration","ns","406240",
"0",{GEMM},"GPU Speed Of Light Throughput","Compute (SM) Throughput","%","23.59",
"0",{GEMM},"SpeedOfLight","","","","SOLBottleneck","OPT","This, and more.","",""
"0",{GEMM},"Launch Statistics","Cluster Scheduling Policy","","PolicySpread",
"0",{GEMM},"Occupancy","Achieved Occupancy","%","15.53",
"1",{GEMM},"GPU Speed Of Light Throughput","DRAM Throughput","%","0.74",
"1",{GEMM},"GPU Speed Of Light Throughput","Duration","msecond","1.218720",
"1",{GEMM},"GPU Speed Of Light Throughput","Compute (SM) Throughput","%","(!) n/a",
"""
FORBIDDEN = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
)


def write(folder, text):
    path = folder / "ncu.csv"
    path.write_text(text)
    return path


def test_kernels_of_the_wide_form_are_summed_up_and_means_go_by_time(tmp_path):
    kernels = read_ncu_csv(write(tmp_path, RAW))
    assert list(kernels.columns[:5]) == ["kernel", "calls", "total_us", "self_us", "share"]
    gemm, norm = kernels.to_dict("records")
    assert (gemm["kernel"], gemm["calls"], gemm["total_us"]) == ("gemm(float *, int)", 2, pytest.approx(4000))
    assert gemm["share"] == pytest.approx(4000 / 4000.5) and gemm["note"] is None
    assert gemm["sm_throughput_percent"] == pytest.approx((30 * 3 + 10) / 4)
    assert gemm["dram_throughput_percent"] == pytest.approx((80.5 * 3 + 40.5) / 4)
    assert gemm["achieved_occupancy_percent"] == pytest.approx(50)
    assert norm["achieved_occupancy_percent"] == 25.5


def test_what_was_not_measured_is_nan_with_a_note_and_never_zero(tmp_path):
    norm = read_ncu_csv(write(tmp_path, RAW)).set_index("kernel").loc["norm"]
    assert norm.isna()["dram_throughput_percent"] and norm["sm_throughput_percent"] == 1
    assert norm["note"] == f"not measured: {DRAM} (not asked for, or not on this GPU)"
    without_time = read_ncu_csv(write(tmp_path, RAW.replace('"3,000,000"', '"n/a"'))).set_index("kernel")
    gemm = without_time.loc["gemm(float *, int)"]
    assert gemm.isna()[["total_us", "self_us", "share"]].all() and "gpu__time_duration.sum" in gemm["note"]
    assert gemm["sm_throughput_percent"] == 20  # without times, each launch counts the same
    assert without_time.loc["norm", "total_us"] == 0.5


def test_launches_of_the_long_form_have_the_same_columns(tmp_path):
    launches = read_ncu_launches(write(tmp_path, DETAILS))
    assert launches["launch"].tolist() == [0, 1] and set(launches["kernel"]) == {"cutlass3x_sm100"}
    assert launches["duration_us"].tolist() == pytest.approx([406.24, 1218.72])
    assert launches["sm_throughput_percent"].tolist() == pytest.approx([23.59, float("nan")], nan_ok=True)
    assert launches["achieved_occupancy_percent"].tolist() == pytest.approx([15.53, float("nan")], nan_ok=True)
    assert launches["note"][0] is None and launches["note"][1].startswith(f"not measured: {SM}, {WARPS}")
    raw = read_ncu_launches(write(tmp_path, RAW))
    assert list(raw.columns) == list(launches.columns) and raw["duration_us"].tolist() == pytest.approx(
        [3000, 1000, 0.5]
    )


def test_an_amount_of_the_same_name_is_no_share(tmp_path):
    text = DETAILS.replace('"DRAM Throughput","%","0.74"', '"DRAM Throughput","Gbyte/second","14.2"')
    assert read_ncu_launches(write(tmp_path, text))["dram_throughput_percent"].isna().all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RAW[: RAW.index(',"1.00","25.5"')], r"ncu.csv, line 8: this row has 13 fields, the table has 15"),
        (RAW[: RAW.index('40.50"')], r"ncu.csv, line 7: this row cannot be read"),
        (RAW.replace("10.00", "ten"), f"ncu.csv, line 7, field '{SM}': 'ten' is not a number"),
        (RAW.replace("10.00", "9,00"), "decimal comma: run the tool with LC_ALL=C"),
        (RAW.replace('"ns"', '"cycle"'), "'cycle' is no unit of time. .*--print-units base"),
        ("hello\n", "ncu.csv: there is no table of ncu in it. Write one with `ncu --csv"),
    ],
)
def test_damage_is_told_with_its_place_and_remedy(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read_ncu_csv(write(tmp_path, text))


def test_a_file_without_launches_says_why(tmp_path):
    with pytest.raises(UserError, match=r"looked at no kernel.*skip fewer"):
        read_ncu_csv(write(tmp_path, "==PROF== Connected to process 1\n==WARNING== No kernels were profiled.\n"))
    with pytest.raises(UserError, match="NVreg_RestrictProfilingToAdminUsers=0"):
        read_ncu_csv(write(tmp_path, FORBIDDEN + "==WARNING== No kernels were profiled.\n"))


FAKE = 'while [ "$1" != --log-file ]; do shift; done\ncp {folder}/of_elsewhere "$2"\nexit {status}'


def test_a_run_with_ncu_on_path_is_measured_and_read(tmp_path, monkeypatch):
    (tmp_path / "of_elsewhere").write_text(RAW)
    tool = fake_tool("ncu", FAKE.format(folder=tmp_path, status=0), tmp_path / "bin", monkeypatch)
    output = tmp_path / "ncu.csv"
    command = ncu_command(output, ["python", "train.py"], kernels=20, skip=100, nvtx_range="step")
    run_tool(command, refusals=ncu.REFUSALS, log=output, show=False)
    assert len(read_ncu_csv(output)) == 2
    called = arguments(tool)
    assert called[-2:] == ["python", "train.py"] and called[called.index("--metrics") + 1].count(",") == 3
    told = {name: called[called.index(name) + 1] for name in called if name.startswith("--")}
    assert (told["--page"], told["--target-processes"], told["--nvtx-include"]) == ("raw", "all", "step/")
    assert (told["--launch-count"], told["--launch-skip"]) == ("20", "100")


@pytest.mark.parametrize("status", [0, 1])
def test_counters_that_are_forbidden_are_told_with_how_to_get_them(tmp_path, monkeypatch, status):
    (tmp_path / "of_elsewhere").write_text(FORBIDDEN)
    fake_tool("ncu", FAKE.format(folder=tmp_path, status=status), tmp_path / "bin", monkeypatch)
    output = tmp_path / "ncu.csv"
    with pytest.raises(UserError) as told:
        run_tool(ncu_command(output, ["x"], kernels=1), refusals=ncu.REFUSALS, log=output, show=False)
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
