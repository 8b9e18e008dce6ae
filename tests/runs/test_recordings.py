"""What others measured: cards, frames, and the files from which they follow."""

import json
import math
import runpy
import shutil
import tomllib
from hashlib import sha256

import pandas as pd
import pytest

from labkit.errors import DataError, UserError
from labkit.plots import figure_batch_size
from labkit.project import shipped_datasets
from labkit.runs import recorded, recorded_table, recordings
from labkit.runs.frames import CURVE_COLUMNS, RUN_COLUMNS, Frames
from labkit.runs.published import chosen, read_card
from labkit.tta import by_batch_size, summary, survival

SHIPPED = shipped_datasets() / "recorded"
PUBLISHED = runpy.run_path(str(SHIPPED / "published.py"))
read_published, write_recording = PUBLISHED["read_published"], PUBLISHED["write_recording"]
ZEUS = SHIPPED / "zeus-nsdi23" / "original"
SPEECH = "deepspeech2 on librispeech"


@pytest.mark.parametrize("name", [card.name for card in recordings()])
def test_the_parquet_files_are_what_the_script_makes_of_the_originals(name):
    makers = runpy.run_path(str(SHIPPED / "make.py"))["MAKERS"]
    made = makers[name]()
    assert {path.name for path in (SHIPPED / name).glob("*.parquet")} == set(made)
    for file, frame in made.items():
        pd.testing.assert_frame_equal(frame, pd.read_parquet(SHIPPED / name / file), check_dtype=False)


@pytest.mark.parametrize("card", recordings(), ids=lambda card: card.name)
def test_a_card_names_who_when_on_what_under_which_licence_and_its_originals_are_those_beside_it(card):
    assert all((card.authors, card.devices, card.date, card.source, card.licence, card.derived, card.cannot_say))
    assert card.provenance == f"recorded, {card.cite}"
    files = {path.name: path.read_bytes() for path in (card.folder / "original").iterdir()}
    for original in card.originals:
        content = files[original.url.rsplit("/", 1)[-1]]
        assert (len(content), sha256(content).hexdigest()) == (original.size_bytes, original.sha256)


def test_the_card_says_of_each_benchmark_whether_its_rate_follows_from_the_batch_size():
    runs, _ = recorded("mlperf-rcp")
    rates = {job: own.groupby("batch_size")["learning_rate"].first() for job, own in runs.groupby("job")}
    assert rates["RNN-T (MLPerf)"].is_unique and rates["DLRM (MLPerf)"].is_unique
    assert rates["DLRM-DCNv2 (MLPerf)"].drop(135168).unique().tolist() == [0.004]
    assert "at 135,168 (0.0034, elsewhere 0.004)" in read_card("mlperf-rcp").cannot_say


def test_runs_of_a_recording_are_ordinary_frames_whose_budgets_name_the_device_and_what_varies():
    frames = recorded("zeus-nsdi23", job=SPEECH, batch_size=[32, 64], power_limit_w="max")
    runs, curves = frames
    assert isinstance(frames, Frames) and set(RUN_COLUMNS) <= set(runs) and set(CURVE_COLUMNS) <= set(curves)
    assert set(runs["budget"]) == set(runs["device"]) and set(runs["setting"]) == {"batch_size 32", "batch_size 64"}
    assert runs.groupby("device")["power_limit_w"].first().to_dict() == {
        "A40": 300, "P100": 250, "RTX 6000": 260, "V100": 250,
    }  # fmt: skip
    assert runs.groupby("budget")["device"].nunique().eq(1).all(), "two devices are never of one series"
    assert set(runs["provenance"]) == {"recorded, You et al. 2023"}
    assert runs["energy_j"].to_list() == pytest.approx((runs["average_power_w"] * runs["wall_s"]).to_list())
    assert curves["value"].between(0.35, 0.65).all(), "shares, not per cent"


def test_epochs_of_dlrm_are_parts_of_one_though_its_file_counts_from_one():
    runs, curves = recorded("mlperf-rcp", job="DLRM (MLPerf)", batch_size=32768)
    assert runs["epochs"].median() == 0.75 and curves["samples"].max() < 4_195_197_692
    assert curves["wall_s"].isna().all()


def test_of_a_step_that_the_gpu_bounds_kernels_alone_are_nearly_all():
    steps = recorded_table("param-rtx2080ti", "steps")
    share = (steps["busy_us"] / steps["interval_us"])[steps["loader_us"] < 10_000]
    assert len(share) == 15 and share.between(0.99, 1).all()
    assert (steps["busy_us"] / steps["interval_us"])[steps["loader_us"] > 200_000].max() < 0.6


def test_tables_say_where_they_are_from():
    shapes = recorded_table("pmdlt-a100", "square_kernel")
    row = shapes.set_index(["blocks", "threads"]).loc[(131072, 1)]
    counters = ["gpu_utilisation", "graphics_active", "sm_active", "sm_occupancy", "launch_us"]
    assert len(shapes) == 87 and row[counters].tolist() == pytest.approx([100, 99.9, 29.2, 1.4, 126])
    runs = recorded_table("pmdlt-a100", "mnist_runs").set_index("tools")
    assert runs.loc["", "train_s"] == 48.66
    assert runs.loc["nsys, dcgmi, nvidia-smi, top", "peak_memory_mib"] == 6042
    epochs = recorded_table("torchrec-dlrm", "one_epoch")
    assert epochs.groupby("readme").size().to_dict() == {2022: 5, 2025: 4}
    assert epochs["provenance"].str.startswith("recorded").all()


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: recorded("zeus"), "Did you mean zeus-nsdi23"),
        (lambda: recorded("pmdlt-a100"), "tables, not runs.*mnist_runs"),
        (lambda: recorded("zeus-nsdi23", batch_size=33), "no run has batch_size 33: choose from 2, 4"),
        (lambda: recorded("zeus-nsdi23", batch_size="32"), "no run has batch_size '32'"),
        (lambda: recorded("zeus-nsdi23", batch_size=[]), "keeps no run"),
        (lambda: recorded("zeus-nsdi23", device="max"), "device is not a number"),
        (lambda: recorded("zeus-nsdi23", batch=32), "no 'batch': choose from run, job, device"),
        (lambda: recorded_table("zeus-nsdi23", "runs"), "no table 'runs': choose from its runs"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(ask, says):
    with pytest.raises(UserError, match=says):
        ask()


@pytest.fixture
def files(tmp_path):
    shutil.copytree(ZEUS, tmp_path / "files")
    return tmp_path / "files"


def test_downloaded_files_become_a_recording_that_reads_like_one_that_ships(files, tmp_path):
    runs, evaluations = read_published(sorted(files.iterdir()))
    words = {"title": "a title", "derived": "by hand", "authors": 'a "word" é'}
    kept = chosen(runs, {"job": [SPEECH], "batch_size": 32})
    folder = write_recording(tmp_path / "runs" / "mine", kept, evaluations, cite="Somebody 2022", **words)
    card = read_card(folder)
    assert card.authors == 'a "word" é' and tomllib.loads((card.folder / "card.toml").read_text())["devices"]
    own, curves = recorded(tmp_path / "runs" / "mine", power_limit_w="max")
    theirs, their_curves = recorded("zeus-nsdi23", job=SPEECH, batch_size=32, power_limit_w="max")
    assert sorted(own["wall_s"]) == sorted(theirs["wall_s"]) and len(curves) == len(their_curves)
    assert set(own["provenance"]) == {"recorded, Somebody 2022"}
    with pytest.raises(UserError, match="is there already: choose another --name"):
        write_recording(card.folder, kept, evaluations, cite="", **words)


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


POWER, TRAIN = "summary_power_v100.csv", "summary_train.csv"


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (TRAIN, "target_epoch", "epoch", "no column 'target_epoch', but dataset, network"),
        (TRAIN, "adamw,6.50e-05,1,65,1", "adamw,6.50e-05,1,0.65,1", "line 1522.*'target_metric': .* a share"),
        (TRAIN, "movielens-1m,ncf,4,adam", "imagenet21k,ncf,4,adam", "'imagenet21k' is none of"),
        (POWER, "100,11.276666666666666,86.86", "100,11.276666666666666,86860.86", "line 2.*above the power limit"),
        (POWER, "100,11.276666666666666", "100,0", "line 2.*'time_per_epoch'.*no number above 0"),
        (POWER, "100,11.276666666666666", "100,eleven", "line 2.*'time_per_epoch'.*no number"),
        (POWER, "adadelta,100,11.27", "adadelta,100000,11.27", "line 2.*'power_limit'.*in watts"),
        (TRAIN, "adamw,6.50e-05,1,65,1", "adamw,6.50e-05,1,65,-3", "line 1522.*'target_epoch'.*no number above 0"),
    ],
)  # fmt: skip
def test_a_file_with_other_columns_or_units_is_refused_by_file_line_and_field(files, file, old, new, says):
    change(files / file, old, new)
    with pytest.raises(DataError, match=f"{file}.*{says}"):
        read_published(sorted(files.iterdir()))


def test_a_seed_that_stands_twice_is_refused_and_not_counted_twice(files):
    lines = (files / TRAIN).read_text().splitlines()
    (files / TRAIN).write_text("\n".join([*lines, lines[5]]) + "\n")
    with pytest.raises(DataError, match=rf"line {len(lines) + 1}, field 'run': this training has this target twice"):
        read_published(sorted(files.iterdir()))


def test_a_gpu_that_was_timed_in_two_files_is_refused_and_trainings_without_a_timing_are_told(files, tmp_path):
    with pytest.warns(UserWarning, match=r"summary_train.csv: 1?\d+ trainings at batch sizes that no GPU was timed at"):
        read_published([files / TRAIN, files / POWER])
    shutil.copytree(files, tmp_path / "again")
    with pytest.raises(UserError, match="V100 was timed in two of the files"):
        read_published([files / TRAIN, files / POWER, tmp_path / "again" / POWER])
    lines = (files / POWER).read_text().splitlines()
    (files / POWER).write_text("\n".join([lines[0], lines[1].replace("1024", "1000")]) + "\n")
    with pytest.raises(UserError, match=r"no batch size of summary_train.csv was timed on V100"):
        read_published([files / TRAIN, files / POWER])


def test_two_learning_rates_of_a_batch_size_are_two_series(files, tmp_path):
    text = (files / TRAIN).read_text()
    more = [line.replace("6.50e-05", "1e-3") for line in text.splitlines() if "adamw,6.50e-05" in line]
    (files / TRAIN).write_text(text + "\n".join(more) + "\n")
    runs, evaluations = read_published([files / TRAIN, files / POWER])
    assert runs["run"].is_unique
    write_recording(tmp_path / "mine", runs, evaluations, title="", cite="S 2022", derived="")
    own, _ = recorded(tmp_path / "mine", job=SPEECH, batch_size=12, power_limit_w="max")
    assert own.groupby(["budget", "setting"]).size().to_dict() == {
        ("V100", "learning_rate 6.5e-05"): 5,
        ("V100", "learning_rate 0.001"): 5,
    }


def test_recorded_and_measured_runs_together_keep_their_batch_sizes():
    from made_up import arriving

    curves, runs = arriving([10.0, 20.0], settings={"budget": "all-cores", "batch_size": 64}, metric="wer")
    theirs = recorded("zeus-nsdi23", job=SPEECH, batch_size=pd.Series([32, 64]), power_limit_w="max", device="V100")
    both = Frames.together(Frames(runs, curves), theirs)
    table = by_batch_size(both.curves, both.runs, 0.7, unit="samples")
    assert table[["device", "batch_size"]].values.tolist() == [["all-cores", 64]], "of theirs no samples are told"
    table = by_batch_size(both.curves, both.runs.assign(epochs=both.runs["epochs"].fillna(1)), 0.4, unit="epochs")
    assert table["batch_size"].tolist()[-2:] == [32, 64]


def test_what_a_recording_does_not_tell_is_said():
    runs, curves = one = recorded("mlperf-rcp", batch_size=512)
    for ask, words in (
        (lambda: Frames.together(one, one), "is in two of the sources"),
        (lambda: summary(curves, runs, 0.058), r"have no times.*use labkit.tta.by_batch_size"),
        (lambda: by_batch_size(curves, runs, 0.058), "record no samples: give unit='epochs'"),
        (lambda: survival(curves, runs, 35), "the target 35 is beyond any word error rate, .* write 0.35"),
        (lambda: figure_batch_size(by_batch_size(curves, runs, 0.01, unit="epochs")), "choose an easier one"),
    ):
        with pytest.raises(UserError, match=words):
            ask()


def test_files_of_no_known_format_or_of_two_are_refused(files, tmp_path):
    (tmp_path / "mine.json").write_text('{"x": {"BS": 1}}')
    (tmp_path / "empty.json").write_text("{}")
    for paths, words in (
        ([tmp_path / "mine.json"], "mine.json: this file is damaged .*Benchmark"),
        ([files / "absent.csv"], "absent.csv: there is no such file"),
        ([files / TRAIN], "no format that labkit reads: summary_train.csv"),
        ([tmp_path / "empty.json"], "holds no convergence point"),
        ([SHIPPED / "mlperf-rcp" / "original" / "rcps_dlrm.json"] * 2, "in two of the files"),
    ):
        with pytest.raises(UserError, match=words):
            read_published(paths)


POINT = {"Benchmark": "resnet", "BS": 512, "Hyperparams": {"opt_base_learning_rate": 7.1}, "Epochs to converge": [36]}


def point(**changes) -> dict:
    return {name: value for name, value in (POINT | changes).items() if value is not None}


# of a point what differs; metric, target, epochs and samples of its run
POINTS = [
    ({}, ("accuracy", 0.759, 36, math.nan)),
    ({"Platform": None, "Hyperparams": {"opt_lr": 0.1}}, ("accuracy", 0.759, 36, math.nan)),
    ({"Benchmark": "dlrm", "Epochs to converge": [1.75]}, ("auc", 0.8025, 0.75, 0.75 * 4_195_197_692)),
    ({"Benchmark": "dlrmv4", "Epochs to converge": [66_519_040]}, ("auc", 0.75, 0.0290370, 66_519_040)),
    ({"Benchmark": "bert", "samples to converge": [8], "Epochs to converge": None}, ("accuracy", 0.72, math.nan, 8)),
    ({"Benchmark": "bert", "Epochs to converge": [2_834_944]}, ("accuracy", 0.72, math.nan, 2_834_944)),
    ({"Benchmark": "gpt3", "Epochs to converge": [2048 * 99]}, ("validation_loss", 2.69, math.nan, 99)),
    ({"Benchmark": "sd", "Epochs to converge": [5000]}, ("fid", 90, math.nan, 5000 * 512)),
    ({"Benchmark": "ssd", "Epochs to converge": [50]}, ("map", 0.23, 50, math.nan)),
    ({"Benchmark": "ssd", "Epochs to converge": [5]}, ("map", 0.34, 5, math.nan)),
    ({"Benchmark": "unet3d", "Epochs to converge": [1148]}, ("dice", 0.908, 1148, 168 * 1148)),
    ({"Benchmark": "unet3d", "Epochs to converge": [168 * 2000]}, ("dice", 0.908, 2000, 168 * 2000)),
]


@pytest.mark.parametrize("changes, expected", POINTS)
def test_points_of_each_benchmark_have_their_target_and_unit(tmp_path, changes, expected):
    path = tmp_path / "rcps_x.json"
    path.write_text(json.dumps({"x_ref": point(**changes)}))
    runs, curves = read_published([path])
    assert runs[["metric", "target", "epochs", "samples"]].iloc[0].tolist() == pytest.approx(expected, nan_ok=True)
    assert curves["value"].tolist() == [expected[1]]


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"Benchmark": "dlrm_v9"}, "x_ref.Benchmark is 'dlrm_v9'"),
        *(({"BS": value}, "BS") for value in (-5, 0, 1.9, True, "1000", math.inf, 2**70)),
        *(({"Hyperparams": {"opt_base_learning_rate": value}}, "learning rate") for value in (-1, 0, True, "0.1", [1])),
        ({"Hyperparams": {"opt_base_learning_rate": math.nan}}, "learning rate must be a number, not nan"),
        *(
            ({"Epochs to converge": value}, "Epochs to")
            for value in ([], [-36], [0], [1e300], ["36"], [True], 36, [36, [1]])
        ),
        ({"Epochs to converge": [math.nan]}, "must be a number, not nan"),
        ({"Epochs to converge": None}, "must have one of"),
        ({"samples to converge": [3000]}, "must have one of"),
        ({"Benchmark": "dlrm", "Epochs to converge": [0.75]}, "no epochs of a training"),
    ],
)
def test_a_point_that_cannot_be_is_refused_with_its_name_and_field(tmp_path, changes, words):
    path = tmp_path / "rcps_x.json"
    path.write_text(json.dumps({"y_ref": point(), "x_ref": point(**changes)}))
    with pytest.raises(DataError, match=words) as caught:
        read_published([path])
    assert caught.value.file == path


WITHOUT_SUM = 'cite = "y"\ndevices = []\nderived = "z"\noriginals = [{ url = "https://example.org" }]'


@pytest.mark.parametrize("more", ["", WITHOUT_SUM], ids=["fields lack", "an original lacks its size and sum"])
def test_a_damaged_card_is_named(tmp_path, more):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "card.toml").write_text(f'title = "x"\n{more}')
    with pytest.raises(DataError, match=r"card.toml: this card is damaged"):
        read_card(tmp_path / "mine")
