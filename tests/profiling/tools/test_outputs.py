"""What nsys and py-spy write, as frames."""

import pytest

from labkit.errors import DataError, UserError
from labkit.profiling.tools.nsys import read_stats
from labkit.profiling.tools.py_spy import python_functions

# Nothing here was measured by labkit. The form is that of nsys 2024.5.1 and 2025.3.2. The numbers of CUTLASS, nvjet and
# the API are from a public report on vLLM (nsys 2024.5.1), those of memory and NVTX from one on Shallow-π (nsys
# 2025.3.2); `reduce` is made up.
STATS = {
    "cuda_gpu_kern_sum": """\
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
79.8,14198407375,97620,145445.7,107872.0,60063,2791471,118203.8,"void cutlass::device_kernel<cute::tuple<long, long>>"
2.1,379006854,48523,7810.9,7776.0,7296,9344,225.8,nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT
0.0,2000,2,1000.0,1000.0,1000,1000,0.0,"reduce(float *, ""odd"")"
""",
    "cuda_gpu_mem_time_sum": """\
Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
56.0,"76,064",50,1521.3,1440.0,1088,2176,359.0,[CUDA memcpy Device-to-Device]
""",
    "cuda_api_sum": """\
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
87.4,9331651745,20705,450695.6,441896.0,2127,105595123,947126.2,cudaMemcpyAsync
2.4,257665811,6184,41666.5,4801.5,1376,164772789,2108007.5,cudaLaunchKernel
""",
    "nvtx_sum": """\
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range
21.2,23518204,1,23518204.0,23518204.0,23518204,23518204,0.0,PushPop,:sample_actions_iter_0_num_steps_10
""",
}


def stats(folder, **changed):
    for report, text in (STATS | changed).items():
        if text is not None:
            (folder / f"nsys_{report}.csv").write_text(text)
    return read_stats(folder / "nsys.nsys-rep")


def test_nsys_statistics_come_by_name_in_microseconds(tmp_path):
    frames = stats(tmp_path)
    kernels = frames["kernels"].set_index("kernel")
    assert kernels.index.tolist() == [
        "void cutlass::device_kernel<cute::tuple<long, long>>",
        "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT",
        "[CUDA memcpy Device-to-Device]",
        'reduce(float *, "odd")',
    ]
    assert kernels["calls"].tolist() == [97620, 48523, 50, 2]
    assert kernels["total_us"].tolist() == pytest.approx([14198407.375, 379006.854, 76.064, 2])
    assert kernels["share"].sum() == pytest.approx(1)
    assert frames["api_calls"]["operator"].tolist() == ["cudaMemcpyAsync", "cudaLaunchKernel"]
    assert frames["ranges"]["phase"].tolist() == ["sample_actions_iter_0_num_steps_10"]


def test_what_nsys_did_not_record_is_empty(tmp_path):
    frames = stats(tmp_path, cuda_gpu_kern_sum=None, cuda_gpu_mem_time_sum=None, nvtx_sum="")
    assert frames["kernels"].empty and list(frames["kernels"].columns) == ["kernel", "calls", "total_us", "share"]
    assert frames["ranges"].empty and len(frames["api_calls"]) == 2


@pytest.mark.parametrize("damage", [("379006854", "many"), ("Total Time (ns)", "Time"), ("Instances", "Runs")])
def test_a_damaged_table_of_nsys_is_told_with_its_file_and_remedy(tmp_path, damage):
    with pytest.raises(DataError, match=r"nsys_cuda_gpu_kern_sum.csv: this table cannot be read .*nsys stats"):
        stats(tmp_path, cuda_gpu_kern_sum=STATS["cuda_gpu_kern_sum"].replace(*damage))


STACKS = """\
<module> (cli.py:8);<module> (/w/train.py:8);main (/w/train.py:7);fib (/w/train.py:3) 2
<module> (cli.py:8);<module> (/w/train.py:8);main (/w/train.py:7);fib (/w/train.py:3);fib (/w/train.py:2) 5
<module> (cli.py:8);<module> (/w/train.py:8);main (/w/train.py:7) 1
<module> (cli.py:8);<module> (/w/train.py:8);load (my data (1).py:40);read (lib.so) 2
_bootstrap (threading.py:9);refresh (live.py:7) 4
"""


def functions(folder, text):
    path = folder / "py-spy.txt"
    path.write_text(text)
    return python_functions(path, "/w/train.py")


def test_stacks_through_the_script_become_functions_each_counted_once_a_sample(tmp_path):
    table = functions(tmp_path, STACKS).set_index("function")
    assert table.index[0] == "fib" and "refresh" not in table.index
    assert table.loc["fib", ["samples", "self_samples", "share", "line"]].tolist() == [7, 7, 0.7, 2]
    assert table.loc["main", ["samples", "self_samples", "with_callees"]].tolist() == [8, 1, 0.8]
    assert table.loc["load", "file"] == "my data (1).py" and table["line"].isna()[["load", "read"]].all()
    assert table["self_samples"].sum() == 10


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (STACKS[:130], r"py-spy.txt, line 2: this line has no number of samples at its end. .*profile again"),
        ("main (other.py:7) 3\n", "py-spy took no sample within the steps. Let them go on for longer"),
        ("", "py-spy took no sample within the steps"),
    ],
)
def test_damaged_and_missing_samples_are_told(tmp_path, text, words):
    with pytest.raises(UserError, match=words):
        functions(tmp_path, text)
