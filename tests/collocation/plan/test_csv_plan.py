"""Plans in radT's CSV: what its columns come to, what is kept of its rows, and what is said of every wrong one."""

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
        "0,1,one,,,0,-,../code/train.py,smi+top,\"--batch-size 128 --note 'two, words'\"\n"
        "0,2,a,,,0,-,../code/train.py,smi,\n"
        "0,2,b,,,GPU-1a2b,-,code/train.py,SMI+nsys,\n"
        "\n"
        "0,3,,,,0,MPS,../code/train.py,smi,\n"
        "1,3,MIG shared gpu 1,,,2,3g.20gb,../code/train.py,smi,\n"
        "1,3,MIG shared gpu 2,,,2.0,1g.5gb,../code/train.py,smi,\n"
        "2,1,,,,cpu,nan,../code/train.py,top,\n"
        "2,1,,,,,-,../code/train.py,top\n"
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
    first, (_, other) = found.plan.workloads[0].jobs[0], found.plan.workloads[1].jobs
    assert first.arguments == ("--batch-size", "128", "--note", "two, words")
    assert (first.script, first.folder) == ("csv/../code/train.py", "csv/../code")
    assert other.script == "code/train.py", "found from the working folder too, as radT has it"
    (notice,) = found.notices
    assert notice.startswith("csv/plan.csv, line 4: nsys is left out") and "`labkit profile`" in notice


def test_statuses_are_kept_beside_the_file_and_the_next_reading_goes_on_from_there(read):
    rows = (
        "0,1,,FINISHED quick-fox (0),r1,0,-,gone.py,smi,\n"
        "0,2,a,FINISHED,r2,0,-,../code/train.py,smi,\n"
        "0,2,b,FAILED,r3,0,-,../code/train.py,smi,\n"
        "0,3,c,,,0,-,../code/train.py,smi,'x, y'\n"
    ).replace("'x, y'", '"--note ""x, y"""')
    found = read(rows)
    assert [(w.name, len(w.jobs)) for w in found.plan.workloads] == [("0-2", 2), ("0-3", 1)]
    assert found.notices == (
        "0-1 is finished, and left out.",
        "0-2: 1 of 2 rows are finished; they run together, so all run again.",
    )
    found.record("0-3", "c", "FINISHED", "20261121-x")
    assert (found.status_file.parent / "plan.csv").read_text() == HEADER + rows, "its user's file is as it was"
    assert found.status_file.name == "plan.status.csv"
    assert '0,3,c,FINISHED,20261121-x,0,-,../code/train.py,smi,"--note ""x, y"""' in found.status_file.read_text()
    assert [w.name for w in read(rows).plan.workloads] == ["0-2"]
    assert [w.name for w in read(rows.replace("x, y", "z")).plan.workloads] == ["0-2", "0-3"], "it asks for another job"
    for job in ("a", "b"):
        found.record("0-2", job, "FINISHED", "20261121-y")
    with pytest.raises(UserError, match=r"as every row is finished: delete plan\.status\.csv, or empty the Status"):
        read(rows)


def test_columns_stand_in_any_order_and_others_are_kept(read):
    header = "Mine, File,Workload,Experiment,Status,Run,Collocation,Profilers,Devices\n"
    found = read("x,../code/train.py,7,0,,,-,top,\n", header)
    found.record("0-7", "train", "FINISHED", "r1")
    assert found.status_file.read_text().splitlines()[1] == "x,../code/train.py,7,0,FINISHED,r1,-,top,"


def test_all_rows_are_checked_and_each_mistake_has_one_line(refusal):
    found = refusal(
        "0,1,,,,0,-,../code/trian.py,smi,\n"
        "0,2,,,,0+1,-,../code/train.py,smi,\n"
        "0,3,,,,0,-,../code/train.py,smi,\n"
        "0,3,,,,0,MPS,../code/train.py,smi,\n"
        "0,4,,,,0,-,../code/train.py,smi,--note 'open\n"
    )
    assert found == [
        "csv/plan.csv: 4 mistakes to mend before anything can start:",
        "csv/plan.csv, line 2: there is no script csv/../code/trian.py nor ../code/trian.py: check the path, which "
        "counts from the plan's folder.",
        "csv/plan.csv, line 3, field 'Devices': '0+1' is not understood: write one GPU's number or UUID, or cpu; jobs "
        "on several have a row each.",
        "csv/plan.csv, line 5, field 'Collocation': it is mps here, and - in another row of the workload: rows that "
        "run together share in one way; make them equal, or give this one another Workload.",
        'csv/plan.csv, line 6: the arguments "--note \'open" end inside a quote, or in a backslash: close the quote, '
        "or put the backslash in quotes.",
    ]


@pytest.mark.parametrize(
    ("row", "part"),
    [
        ("0,1,,,,0,3g20gb,../code/train.py,,", "field 'Collocation': '3g20gb' is neither -, MPS, a MIG profile such"),
        ("0,1,,,,0,-,dlmr:tour,,", "job 'dlmr' is unknown: did you mean 'dlrm'?"),
        ("0,1,,,,0,-,dlrm:tour,,--lr 1", "field 'File': Params are a script's"),
        ("0,1,,,,0,-,dlrm:tour x2,,", "each copy has a row of its own"),
        ("0,1,,,,0,-,,,", "there is no job in it"),
        ("0,1,,,,0,-,../code/train.py,,a,b", "line 2: it has 11 fields, and the header 10"),
        (",1,,,,0,-,../code/train.py,,", "field 'Experiment' or 'Workload' is empty"),
        ('0,1,,,,0,-,../code/train.py,,\n0,2,"a\nb,,', "line 3: this is no CSV (unexpected end of data): close quotes"),
    ],
)
def test_a_mistake_names_its_row_and_the_fix(refusal, row, part):
    assert part in "\n".join(refusal(row + "\n"))


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("Experiment,Workload,Run,Devices,Colocation,File\n",
         "line 1: there is no column Status, Collocation, but Experiment, Workload, Run, Devices, Colocation, File: a "
         "header names Experiment,Workload,Name,Status,Run,Devices,Collocation,Listeners,File,Params, in any order"),
        (HEADER.replace(",", ";"), "and commas separate them."),
        (HEADER.replace("Name", "Run"), "column 'Run' is there twice"),
        ("", "there is no column Experiment"),
        (HEADER, "nothing is left to run, as it has no rows"),
    ],
)  # fmt: skip
def test_a_header_that_lacks_something_is_told(refusal, header, part):
    assert part in "\n".join(refusal("", header))
