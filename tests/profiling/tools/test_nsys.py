"""Nsight Systems: its command, what it says of this machine, and its statistics; with fake tools on PATH."""

import pytest
from fake_tools import arguments, fake_tool

from labkit.errors import DataError, UserError
from labkit.profiling.tools import nsys
from labkit.profiling.tools.nsys import nsys_command, nsys_limits, read_nsys_stats
from labkit.profiling.tools.run_tool import run_tool

# Nothing here was measured by labkit. The form is that of nsys 2024.5.1 and 2025.3.2, the lines before a table that of
# 2023.2.3 (README of github.com/atomicapple0/cutrace). The numbers of CUTLASS, nvjet and the API are from a public
# report on vLLM (nsys 2024.5.1), those of memory and NVTX from one on Shallow-π (nsys 2025.3.2); `reduce` is made up.
STATS = """\
Generating SQLite file recorded.sqlite from recorded.nsys-rep
Exporting 1374 events: [===================================================100%]
Processing [recorded.sqlite] with [/opt/nsight-systems/2024.5.1/host-linux-x64/reports/cuda_gpu_kern_sum.py]...\x20
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
79.8,14198407375,97620,145445.7,107872.0,60063,2791471,118203.8,"void cutlass::device_kernel<cute::tuple<long, long>>"
2.1,379006854,48523,7810.9,7776.0,7296,9344,225.8,nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT
0.0,2000,2,1000.0,1000.0,1000,1000,0.0,"reduce(float *, ""odd"")"

Processing [recorded.sqlite] with [/opt/nsight-systems/2024.5.1/host-linux-x64/reports/cuda_gpu_mem_time_sum.py]...\x20
Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
56.0,76064,50,1521.3,1440.0,1088,2176,359.0,[CUDA memcpy Device-to-Device]
44.0,59873,55,1088.6,1088.0,1056,1216,36.7,[CUDA memcpy Device-to-Host]

Processing [recorded.sqlite] with [/opt/nsight-systems/2024.5.1/host-linux-x64/reports/cuda_api_sum.py]...\x20
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
87.4,9331651745,20705,450695.6,441896.0,2127,105595123,947126.2,cudaMemcpyAsync
2.4,257665811,6184,41666.5,4801.5,1376,164772789,2108007.5,cudaLaunchKernel

Processing [recorded.sqlite] with [/opt/nsight-systems/2024.5.1/host-linux-x64/reports/nvtx_sum.py]...\x20
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range
21.2,23518204,1,23518204.0,23518204.0,23518204,23518204,0.0,PushPop,:sample_actions_iter_0_num_steps_10

"""
# nsys 2022.4.2 has columns for the grid, so that a kernel has a row for each, and other names of reports; 2021 heads
# its columns in another way. Numbers of kernels and memory are from public course work.
OLDER = """\
Processing [q.sqlite] with [/appl/cuda/11.8.0/nsight-systems-2022.4.2/host-linux-x64/reports/gpukernsum.py]...\x20
Time (%),Total Time (ms),Instances,Avg (ms),Med (ms),Min (ms),Max (ms),StdDev (ms),GridXYZ,BlockXYZ,Name
85.3,0.1992,1,0.1992,0.1992,0.1992,0.1992,0.0000,125000    1    1,  32    1    1,reduce_kernel
4.4,0.0103,1,0.0103,0.0103,0.0103,0.0103,0.0000, 977    1    1,  32    1    1,reduce_kernel

Running [/opt/nvidia/hpc_sdk/21.7/profilers/Nsight_Systems/target-linux-x64/reports/gpumemtimesum.py ./a.sqlite]...\x20
Time(%),Total Time (ns),Operations,Average,Minimum,Maximum,StdDev,Operation
58.0,"4,576",5,915.0,832,"1,120",0.0,[CUDA memcpy HtoD]

Processing [q.sqlite] with [/appl/cuda/11.8.0/nsight-systems-2022.4.2/host-linux-x64/reports/osrtsum.py]...\x20
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
99.0,5000000,5,1000000,1000000,1000000,1000000,0.0,poll

Processing [q.sqlite] with [/appl/cuda/11.8.0/nsight-systems-2022.4.2/host-linux-x64/reports/nvtxsum.py]...\x20
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range
60.0,6000,3,2000,2000,2000,2000,0.0,PushPop,forward
"""
# As nsys 2025.3.2 says it of a program that only replays CUDA graphs.
NO_KERNELS = """\
Processing [n1.sqlite] with [/usr/local/cuda-13.0/nsight-systems-2025.3.2/host-linux-x64/reports/cuda_gpu_kern_sum.py]...
SKIPPED: n1.sqlite does not contain CUDA kernel data.

"""  # noqa: E501


def read(folder, text, name="stats.csv"):
    path = folder / name
    path.write_text(text)
    return read_nsys_stats(path)


def test_kernels_have_the_columns_of_a_trace_with_memory_among_them(tmp_path):
    kernels = read(tmp_path, STATS).kernels
    assert list(kernels.columns) == ["kernel", "calls", "total_us", "self_us", "share"]
    assert kernels["kernel"].tolist() == [
        "void cutlass::device_kernel<cute::tuple<long, long>>",
        "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT",
        "[CUDA memcpy Device-to-Device]",
        "[CUDA memcpy Device-to-Host]",
        'reduce(float *, "odd")',
    ]
    assert kernels["calls"].tolist() == [97620, 48523, 50, 55, 2]
    assert kernels["total_us"].tolist() == pytest.approx([14198407.375, 379006.854, 76.064, 59.873, 2])
    assert kernels["self_us"].equals(kernels["total_us"]) and kernels["share"].sum() == pytest.approx(1)


def test_api_calls_and_ranges_come_in_microseconds(tmp_path):
    stats = read(tmp_path, STATS)
    assert list(stats.api_calls.columns) == ["operator", "calls", "total_us", "self_us", "share"]
    assert stats.api_calls["operator"].tolist() == ["cudaMemcpyAsync", "cudaLaunchKernel"]
    assert stats.api_calls["total_us"].tolist() == pytest.approx([9331651.745, 257665.811])
    assert stats.ranges.to_dict("records") == [
        {"phase": "sample_actions_iter_0_num_steps_10", "calls": 1, "total_us": pytest.approx(23518.204)}
    ]
    assert stats.notes == ()


def test_older_versions_are_read_and_a_kernel_with_many_grids_is_one(tmp_path):
    stats = read(tmp_path, OLDER)
    assert stats.kernels["kernel"].tolist() == ["reduce_kernel", "[CUDA memcpy HtoD]"]
    assert stats.kernels["calls"].tolist() == [2, 5]
    assert stats.kernels["total_us"].tolist() == pytest.approx([209.5, 4.576])
    assert stats.ranges["phase"].tolist() == ["forward"]
    assert stats.api_calls.empty  # calls of the operating system are none of CUDA's


def test_what_the_recording_lacks_is_noted(tmp_path):
    stats = read(tmp_path, NO_KERNELS)
    assert stats.notes == ("cuda_gpu_kern_sum: the recording has no CUDA kernel data",)
    assert stats.kernels.empty and list(stats.kernels.columns) == ["kernel", "calls", "total_us", "self_us", "share"]
    assert list(stats.ranges.columns) == ["phase", "calls", "total_us"]


def test_files_of_one_report_each_are_known_by_name_or_columns(tmp_path):
    tables = [part.split("\n", 1)[1] for part in STATS.split("Processing ")[1:]]
    kernels, _, calls, ranges = tables
    files = {"a_cuda_gpu_kern_sum.csv": kernels, "calls.csv": calls, "ranges.csv": ranges, "a_osrt_sum.csv": calls}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    whole = read(tmp_path, STATS)
    apart = read_nsys_stats(tmp_path / "a_cuda_gpu_kern_sum.csv", tmp_path / "calls.csv", tmp_path / "ranges.csv")
    assert apart.api_calls.equals(whole.api_calls) and apart.ranges.equals(whole.ranges)
    assert len(apart.kernels) == 3
    assert read_nsys_stats(tmp_path / "a_osrt_sum.csv").api_calls.empty  # not CUDA's, though it has the same columns


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (STATS[: STATS.index(",225.8,nvjet")], r"stats.csv, line 6: this row has 7 fields, its table has 9\. The file"),
        (STATS[: STATS.index(", long>>")], "stats.csv, line 5: this row cannot be read .*let the tool write it once"),
        (
            STATS.replace("379006854", "many"),
            r"stats.csv, line 6, field 'Total Time \(ns\)': 'many' is not a number",
        ),
        (OLDER.replace('"4,576"', '"4,57"'), "decimal comma: run the tool with LC_ALL=C"),
        ("<html></html>\n", "stats.csv: there is no table of `nsys stats` in it. Write one with `nsys stats"),
        ("", "there is no table"),
    ],
)
def test_damage_is_told_with_its_place_and_remedy(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read(tmp_path, text)


FAKE = """
case "$1 $2" in
    "stats --help-reports") cat {folder}/reports; exit 1;;
    profile*) while [ "$1" != -o ]; do shift; done; echo recorded > "$2"; shift 2; exec "$@";;
    stats*) [ -f {folder}/recorded.nsys-rep ] && exec cat {folder}/stats;;
esac
exit 3
"""


@pytest.mark.parametrize("names", [list(nsys.REPORTS), [old for _, old in nsys.REPORTS.values()]])
def test_a_run_with_nsys_on_path_is_recorded_and_read(tmp_path, monkeypatch, names):
    (tmp_path / "stats").write_text(STATS)
    (tmp_path / "reports").write_text(
        "The following built-in reports are available:\n\n  " + "[:base] -- x\n".join(names)
    )
    tool = fake_tool("nsys", FAKE.format(folder=tmp_path), tmp_path / "bin", monkeypatch)
    recording = tmp_path / "recorded.nsys-rep"
    assert run_tool(nsys_command(recording, ["echo", "a b"]), show=False) == "a b\n"
    called = arguments(tool)
    assert called[:2] == ["profile", "--trace=cuda,nvtx,osrt,cublas,cudnn"] and called[-2:] == ["echo", "a b"]
    assert "--force-overwrite=true" in called and called[called.index("-o") + 1] == str(recording)
    assert len(read_nsys_stats(recording).kernels) == 5
    called = arguments(tool)
    assert [called[place + 1] for place, part in enumerate(called) if part == "--report"] == names
    assert "--force-export=true" in called


def test_a_recording_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UserError, match=r"no such recording. Record one with `nsys profile` first"):
        read_nsys_stats(tmp_path / "x.nsys-rep")


def test_a_failure_of_nsys_stats_is_told_in_its_words(tmp_path, monkeypatch):
    (tmp_path / "x.nsys-rep").touch()
    fake_tool("nsys", "echo 'ERROR: Unable to open x.nsys-rep: corrupt' >&2; exit 1", tmp_path / "bin", monkeypatch)
    with pytest.raises(UserError, match=r"nsys ended with status 1: ERROR: Unable to open x.nsys-rep: corrupt"):
        read_nsys_stats(tmp_path / "x.nsys-rep")


def test_a_missing_nsys_is_told_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "x.nsys-rep").touch()
    for ask in (nsys_limits, lambda: read_nsys_stats(tmp_path / "x.nsys-rep")):
        with pytest.raises(
            UserError, match=r"nsys is not on PATH.*CUDA toolkit.*torch.profiler shows the same kernels"
        ):
            ask()


def test_an_nsys_that_does_not_start_is_told(tmp_path, monkeypatch):
    fake_tool("nsys", "echo 'libz.so.1: no such file' >&2; exit 127", tmp_path / "bin", monkeypatch)
    with pytest.raises(UserError, match=r"nsys does not work here: ends with status 127: libz.so.1: no such file"):
        nsys_limits()


@pytest.mark.parametrize(
    ("limit", "container", "capable", "words"),
    [
        (None, False, False, None),
        (None, True, True, None),
        (None, True, False, "--cap-add=SYS_ADMIN"),
        ("the kernel forbids it to users (…is 4)", False, False, "sudo sysctl kernel.perf_event_paranoid=2"),
    ],
)
def test_samples_of_the_cpu_are_left_out_where_the_kernel_forbids_them(
    tmp_path, monkeypatch, limit, container, capable, words
):
    fake_tool("nsys", "echo 'NVIDIA Nsight Systems version 2024.5.1.113-245134619542v0'", tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(nsys, "perf_limit", lambda: limit)
    monkeypatch.setattr(nsys, "in_container", lambda: container)
    monkeypatch.setattr(nsys, "has_capability", lambda *names: capable)
    notes, command = nsys_limits(), nsys_command(tmp_path / "x", ["python"])
    assert ("--sample=none" in command) == (words is not None) == ("--cpuctxsw=none" in command)
    assert notes == [] if words is None else words in notes[0]
    assert "--sample=none" in nsys_command(tmp_path / "x", ["python"], sample_cpu=False)
