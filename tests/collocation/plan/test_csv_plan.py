"""Plans in radT's CSV: what its columns come to, what is left out, and what is said of every wrong row."""

from __future__ import annotations

import pytest

from labkit.collocation.plan.csv_plan import CsvPlan, read_csv_plan
from labkit.errors import UserError

HEADER = "Experiment,Workload,Name,Status,Run,Devices,Collocation,File,Listeners,Params\n"


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "csv").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("")

    def reader(rows: str, header: str = HEADER) -> CsvPlan:
        path = (tmp_path / "csv" / "plan.csv").relative_to(tmp_path)
        path.write_text(header + rows)
        return read_csv_plan(path)

    return reader


@pytest.fixture
def refusal(read):
    def refused(rows: str, header: str = HEADER) -> list[str]:
        with pytest.raises(UserError) as caught:
            read(rows, header)
        return str(caught.value).splitlines()

    return refused


def test_rows_of_one_workload_run_together_as_their_columns_say(read):
    found = read(
        "0,1,one,,,0,-,../code/train.py,smi+top,--batch-size 128 --note 'two words'\n"
        "0,2,a,,,0,-,../code/train.py,smi,\n"
        "0,2,b,,,GPU-1a2b,-,../code/train.py,smi,\n"
        "0,3,,,,0,MPS,../code/train.py,smi,\n"
        "1,3,MIG shared gpu 1,,,2,3g.20gb,../code/train.py,smi,\n"
        "1,3,MIG shared gpu 2,,,2.0,1g.5gb,../code/train.py,smi,\n"
        "2,1,,,,cpu,nan,../code/train.py,top,\n"
        "2,1,,,,,-,../code/train.py,top,\n"
        "2,2,,,,cpu,cpu-pinned,dlrm:tour,top,\n"
    )
    assert [(w.name, w.mode, [(j.name, j.device, j.mig_profile) for j in w.jobs]) for w in found.plan.workloads] == [
        ("0-1", "alone", [("one", "0", None)]),
        ("0-2", "naive", [("a", "0", None), ("b", "GPU-1a2b", None)]),
        ("0-3", "mps", [("train", "0", None)]),
        ("1-3", "mig", [("MIG-shared-gpu-1", "2", "3g.20gb"), ("MIG-shared-gpu-2", "2", "1g.5gb")]),
        ("2-1", "cpu-shared", [("train-1", "cpu", None), ("train-2", "cpu", None)]),
        ("2-2", "cpu-pinned", [("dlrm-tour", "cpu", None)]),
    ]
    first = found.plan.workloads[0].jobs[0]
    assert first.arguments == ("--batch-size", "128", "--note", "two words")
    assert (first.script, first.folder) == ("csv/../code/train.py", "csv/../code")
    assert found.rows["2-1"] == {"train-1": 8, "train-2": 9}
    assert found.notices == ()


def test_columns_stand_in_any_order_and_others_are_kept(read):
    found = read(
        "x,../code/train.py,7,0,,,-,top,\n", "Mine, File,Workload,Experiment,Status,Run,Collocation,Profilers,Devices\n"
    )
    found.write_back({2: ("FINISHED", "r1")})
    assert found.table.path.read_text().splitlines()[1] == "x,../code/train.py,7,0,FINISHED,r1,-,top,"


def test_a_script_is_found_from_the_working_folder_too_as_radt_has_it(read):
    assert read("0,1,,,,0,-,code/train.py,,\n").plan.workloads[0].jobs[0].script == "code/train.py"


def test_finished_workloads_are_left_out_and_half_finished_ones_run_again(read):
    rows = [
        "0,1,,FINISHED quick-fox (0),r1,0,-,gone.py,smi,\n",
        "0,2,a,FINISHED,r2,0,-,../code/train.py,smi,\n",
        "0,2,b,FAILED,r3,0,-,../code/train.py,smi,\n",
    ]
    found = read("".join(rows))
    assert [(w.name, len(w.jobs)) for w in found.plan.workloads] == [("0-2", 2)]
    assert found.notices == (
        "0-1 is finished, and left out.",
        "0-2: 1 of 2 rows are finished; they run together, so all run again.",
    )


def test_statuses_written_back_are_what_the_next_reading_resumes_from(read):
    found = read("0,1,a,,,0,-,../code/train.py,smi,\n0,2,b,,,0,-,../code/train.py,smi,\n")
    found.write_back({found.rows["0-1"]["a"]: ("FINISHED", "20261121-x")})
    assert [w.name for w in read_csv_plan(found.table.path).plan.workloads] == ["0-2"]
    found.write_back({found.rows["0-2"]["b"]: ("FINISHED", "20261121-y")})
    with pytest.raises(UserError, match="nothing is left to run, as every row is finished: empty the Status"):
        read_csv_plan(found.table.path)


def test_a_profiler_among_the_listeners_is_left_out_and_said(read):
    (notice,) = read("0,1,,,,0,-,../code/train.py,SMI+nsys,\n").notices
    assert notice.startswith("line 2: nsys is left out") and "`labkit profile`" in notice


def test_all_rows_are_checked_and_each_has_one_line(refusal):
    found = refusal(
        "0,1,,,,0,-,../code/trian.py,smi,\n"
        "0,2,,,,0+1,-,../code/train.py,smi,\n"
        "0,3,,,,0,-,../code/train.py,smi,\n"
        "0,3,,,,0,MPS,../code/train.py,smy,\n"
        "0,4,,,,0,3g20gb,../code/train.py,smi,--note 'open\n"
    )
    assert found == [
        "csv/plan.csv: 4 items need mending before any can start:",
        "csv/plan.csv, line 2: there is no script csv/../code/trian.py nor ../code/trian.py: check the path, which "
        "counts from the plan's folder.",
        "csv/plan.csv, line 3, field 'Devices': '0+1' names several, and a job of labkit uses one: name one, and give "
        "each device a row of its own.",
        "csv/plan.csv, line 5: field 'Listeners': 'smy' is no listener of radT: did you mean 'smi'? Also: field "
        "'Collocation': it is mps here, and - in line 4 of the same workload: rows that run together share in one way; "
        "make them equal, or give this one another Workload.",
        "csv/plan.csv, line 6: field 'Collocation': '3g20gb' is neither -, MPS, a MIG profile such as 3g.20gb, nor a "
        "mode of labkit: choose one of MPS, alone, naive, mps, mig, cpu-shared, cpu-pinned. Also: the "
        'arguments "--note \'open" end inside a quote, or in a backslash: close the quote, or put the backslash in '
        "quotes.",
    ]


@pytest.mark.parametrize(
    ("row", "part"),
    [
        ("0,1,,,,cpu,MPS,../code/train.py,,", "mode mps shares a GPU, and Devices names none"),
        ("0,1,,,,0,cpu-pinned,../code/train.py,,", "mode cpu-pinned shares the CPU: write cpu in Devices."),
        ("0,1,,,,gpu0,-,../code/train.py,,", "field 'Devices': 'gpu0' is not understood: write a GPU's number or UUID"),
        ("0,1,,,,0,-,dlmr:tour,,", "job 'dlmr' is unknown: did you mean 'dlrm'?"),
        ("0,1,,,,0,-,dlrm:tour,,--lr 1", "field 'Params': only a script has them"),
        ("0,1,,,,0,-,dlrm:tour x2,,", "each copy has a row of its own"),
        ("0,1,,,,0,-,,,", "there is no job in it"),
        ("0,1,,,,0,-,../code/train.py,,a,b", "it has 11 fields, and the header 10"),
        (",1,,,,0,-,../code/train.py,,", "field 'Experiment' or 'Workload' is empty"),
        ("0,1,,,,0,-,../code/train.py,,\n0,1,,,,cpu,-,../code/train.py,,", "jobs on a CPU and on a GPU share nothing"),
    ],
)
def test_a_mistake_names_its_row_and_the_fix(refusal, row, part):
    assert part in "\n".join(refusal(row + "\n"))


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("Experiment,Workload,Run,Devices,Colocation,File\n",
         "line 1: there is no column Status, Collocation: a header names Experiment,Workload,Name,Status,Run,Devices,"
         "Collocation,Listeners,File,Params, in any order; rename Colocation, where"),
        (HEADER.replace(",", ";"), "line 1: ';' separates the columns: save the file with commas."),
        (HEADER.replace("Name", "Run"), "column 'Run' is there twice"),
        ("", "there is no column Experiment"),
        (HEADER, "nothing is left to run, as it has no rows"),
    ],
)  # fmt: skip
def test_a_header_that_lacks_something_is_told(refusal, header, part):
    assert part in "\n".join(refusal("", header))
