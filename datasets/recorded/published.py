"""Makes a recording of measurements that others published, from the files of their authors.

    python datasets/recorded/published.py FILE... --name zeus --cite "You et al. 2023" [--only batch_size=32]

The folder it makes is read by `labkit report --recorded FOLDER` and `labkit.runs.recorded(FOLDER)`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import pandas as pd

from labkit.cli.flags import add_flags, read_only
from labkit.errors import DataError, UserError
from labkit.json_data import check_shape, read_json
from labkit.runs import CARD, EVALUATIONS, RUNS, chosen, note_left_out, read_card

TRAIN = ["dataset", "network", "batch_size", "optimizer", "learning_rate", "run", "target_metric", "target_epoch"]
POWER = ["dataset", "network", "batch_size", "optimizer", "power_limit", "time_per_epoch", "average_power"]
FORMATS = (
    "summary_train.csv with the summary_power_GPU.csv of the GPUs (Zeus: the columns "
    f"{', '.join(TRAIN)}; {', '.join(POWER[4:])}), or rcps_NAME.json (MLPerf's reference convergence points)"
)


class Task(NamedTuple):
    """What a published job was trained to."""

    metric: str
    higher_is_better: bool
    per: float
    """100 where the file has per cent, of which labkit makes shares"""
    max_epochs: float
    """After which Zeus' own simulator gives a training up (run_alibaba.py)"""


ZEUS = {
    "cifar100": Task("accuracy", True, 1, 100),
    "imagenet": Task("accuracy", True, 1, 100),
    "librispeech": Task("wer", False, 100, 16),
    "movielens-1m": Task("ndcg", True, 1, 100),
    "sentiment140": Task("accuracy", True, 1, 10),
    "squad": Task("f1", True, 100, 6),
}
MOST_W = 5000
"""More than any card takes: a limit in milliwatts"""
GPUS = {
    "a40": ("A40", "a40"),
    "p100": ("P100", "p100-pcie"),
    "rtx6000": ("RTX 6000", "quadro-rtx-6000"),
    "v100": ("V100", "v100-pcie"),
}
"""By the ending of a file's name: the device as its authors call it, and its tier. By their
highest power limits (300, 250, 260 and 250 W) these are PCIe cards."""


def read_published(paths: Sequence[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs and evaluations of published files, by their names and columns.

    Raises:
        UserError: they are of no known format, or of two.
        DataError: a column, a unit or a row is not what the format says.
    """
    if absent := [path for path in paths if not path.is_file()]:
        raise UserError(f"{absent[0]}: there is no such file.")
    if paths and all(path.suffix == ".json" for path in paths):
        return read_convergence_points(paths)
    power = [path for path in paths if path.name.startswith("summary_power_")]
    train = [path for path in paths if path not in power]
    if len(train) == 1 and power and train[0].suffix == ".csv":
        return read_zeus(train[0], power)
    given = ", ".join(path.name for path in paths) or "nothing"
    raise UserError(f"these files are of no format that labkit reads: {given}. Give {FORMATS}.")


def read_zeus(train: Path, power: Sequence[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs of Zeus' traces (You, Chung and Chowdhury, NSDI 2023): each training on each GPU at each power limit.

    A training is known by the whole epoch at which each target was met, a GPU by the time of an epoch and its average
    power, measured once; time and energy of a run are their products.
    """
    epochs = _csv(train, TRAIN)
    key = [*TRAIN[:6], "target_metric"]
    _refuse(epochs.duplicated(key), train, "run", "this training has this target twice", "Leave one of the two out.")
    frames = []
    for path in power:
        gpu = re.sub(r" ?\(\d+\)$", "", path.stem.removeprefix("summary_power_"))  # a browser's second copy
        frame = _csv(path, POWER)
        _refuse(frame.duplicated(POWER[:5]), path, "power_limit", "this setting stands here twice", "Leave one out.")
        too_much = frame["average_power"] > 1.5 * frame["power_limit"]
        _refuse(too_much, path, "average_power", "this is far above the power limit", "Both are in watts.")
        _refuse(frame["power_limit"] > MOST_W, path, "power_limit", "no GPU takes this", "Limits are in watts.")
        device, tier = GPUS.get(gpu, (gpu.upper(), None))
        frames.append(frame.assign(device=device, tier=tier))
    of_gpus = pd.concat(frames, ignore_index=True)
    if unknown := set(epochs["dataset"]) - set(ZEUS):
        raise DataError(
            f"the dataset {min(unknown)!r} is none of {', '.join(ZEUS)}.", file=train, fix="Leave its rows out."
        )
    percent = epochs["dataset"].map(lambda name: ZEUS[name].per == 100)
    odd = percent & (epochs["target_metric"] <= 1)
    _refuse(odd, train, "target_metric", "this looks like a share", "This metric is in per cent here.")
    odd = ~percent & (epochs["target_metric"] > 1)
    _refuse(odd, train, "target_metric", "this looks like per cent", "This metric is a share here.")

    trainings, met = _trainings(epochs)
    runs = trainings.merge(of_gpus, on=["dataset", "network", "batch_size", "optimizer"])
    if runs.empty:
        raise UserError(f"no batch size of {train.name} was timed on {', '.join(of_gpus['device'].unique())}.")
    untimed = ~trainings["training"].isin(runs["training"])
    if untimed.any():
        note_left_out(train, f"{untimed.sum()} trainings at batch sizes that no GPU was timed at")
    names = ["dataset", "network", "device", "batch_size", "power_limit", "training"]
    runs["run"] = runs[names].astype(str).agg("-".join, axis=1).str.lower().str.replace(" ", "")
    if (twice := runs["run"].duplicated()).any():
        raise UserError(f"{runs.loc[twice, 'device'].iloc[0]} was timed in two of the files: leave one of them out.")
    curves = met.merge(runs[["training", "run", "time_per_epoch", "average_power"]], on="training")
    for frame in (runs, curves):
        frame["wall_s"] = frame["epochs"] * frame["time_per_epoch"]
        frame["energy_j"] = frame["wall_s"] * frame["average_power"]
    names = {"power_limit": "power_limit_w", "average_power": "average_power_w", "time_per_epoch": "epoch_s"}
    runs = runs.rename(columns=names).assign(
        train_s=runs["wall_s"],
        job=runs["network"] + " on " + runs["dataset"],
        energy_note="the GPU alone, without its host: its average power by its time",
    )
    order = [
        "run", "job", "device", "tier", "seed", "batch_size", "power_limit_w", "optimizer", "learning_rate", "metric",
        "higher_is_better", "unreached", "epochs", "epoch_s", "average_power_w", "wall_s", "train_s", "energy_j",
        "energy_note",
    ]  # fmt: skip
    return runs[order], _curves(curves)


def _trainings(epochs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a training, with how it ended; and one row a training and epoch at which it met a target."""
    tasks = pd.DataFrame({name: task._asdict() for name, task in ZEUS.items()}).T.rename_axis("dataset").reset_index()
    epochs = epochs.merge(tasks.infer_objects(), on="dataset").rename(columns={"run": "seed", "target_epoch": "epochs"})
    names = [*TRAIN[:5], "seed"]
    epochs["training"] = epochs.groupby(names, sort=False).ngroup()
    trainings = epochs.groupby("training").agg(
        {**dict.fromkeys([*names, "metric", "higher_is_better", "max_epochs"], "first"), "epochs": "max"}
    )
    failed = epochs["epochs"].isna().groupby(epochs["training"]).any()
    trainings["unreached"] = failed.map({True: "failed", False: "censored"})  # what met its last target went no further
    longest = trainings["max_epochs"].clip(lower=trainings["epochs"].fillna(0))
    trainings["epochs"] = trainings["epochs"].where(~failed, longest).astype(float)
    met = epochs.dropna(subset="epochs").assign(value=lambda frame: frame["target_metric"] / frame["per"])
    better = met["value"].where(met["higher_is_better"].astype(bool), -met["value"])  # of several met at once, the best
    met = met.loc[better.groupby([met["training"], met["epochs"]]).idxmax()]
    return trainings.reset_index(), met[["training", "epochs", "value"]]


CRITEO = 4_195_197_692
"""Training samples of Criteo 1TB (facebookresearch/dlrm, torchrec_dlrm/README.MD, "Step 2")"""
YAMBDA = 2_290_835_423
"""Those of Yambda-5b (mlcommons/training_policies#594, the rules of Training 6.1)"""


class Benchmark(NamedTuple):
    """What a benchmark of MLPerf is trained to, by its rules (closed_NAME.yaml in mlcommons/logging)."""

    title: str
    metric: str
    higher_is_better: bool
    target: float
    unit: str = "epochs"
    """Of its numbers, whatever their key says: epochs, samples, steps or tokens"""
    samples: float = float("nan")
    """Samples of an epoch, or tokens of a sample"""
    first: float = 0.0
    """From which number epochs count: DLRM's first is 1, so that 1.75 is three quarters of one (dlrm_s_pytorch.py of
    its reference adds 1)"""


BENCHMARKS = {
    "dlrm": Benchmark("DLRM", "auc", True, 0.8025, samples=CRITEO, first=1.0),
    "dlrm_dcnv2": Benchmark("DLRM-DCNv2", "auc", True, 0.80275, samples=CRITEO),
    "dlrmv4": Benchmark("DLRMv4 (HSTU)", "auc", True, 0.75, "samples", YAMBDA),
    "rnnt": Benchmark("RNN-T", "wer", False, 0.058),
    "bert": Benchmark("BERT", "accuracy", True, 0.72, "samples"),
    "cosmoflow": Benchmark("CosmoFlow", "mean_absolute_error", False, 0.124),
    "deepcam": Benchmark("DeepCAM", "iou", True, 0.82),
    "deepseekv3_671b": Benchmark("DeepSeek-V3 671B", "validation_loss", False, 3.6, "samples"),
    "flux1": Benchmark("FLUX.1", "validation_loss", False, 0.586, "samples"),
    "gnn": Benchmark("R-GAT", "accuracy", True, 0.72),
    "gpt3": Benchmark("GPT-3", "validation_loss", False, 2.69, "tokens", 2048),
    "gpt_oss_20b": Benchmark("gpt-oss-20b", "validation_loss", False, 3.34, "samples"),
    "llama2_70b_lora": Benchmark("Llama 2 70B LoRA", "validation_loss", False, 0.925, "samples"),
    "llama31_405b": Benchmark("Llama 3.1 405B", "validation_loss", False, 5.6, "samples"),
    "llama31_8b": Benchmark("Llama 3.1 8B", "validation_loss", False, 3.3, "samples"),
    "maskrcnn": Benchmark("Mask R-CNN", "box_map", True, 0.377),
    "oc20": Benchmark("Open Catalyst", "force_mae", False, 0.036),
    "openfold": Benchmark("OpenFold", "lddt_ca", True, 0.8, "samples"),
    "qwen35_397b_grpo": Benchmark("Qwen 3.5 397B GRPO", "accuracy", True, 0.69, "samples"),
    "resnet": Benchmark("ResNet-50", "accuracy", True, 0.759),
    "retinanet": Benchmark("RetinaNet", "map", True, 0.34),
    "rgat": Benchmark("R-GAT", "accuracy", True, 0.72),
    "sd": Benchmark("Stable Diffusion", "fid", False, 90, "steps"),
    "ssd": Benchmark("SSD", "map", True, 0.23),
    "stable_diffusion": Benchmark("Stable Diffusion", "fid", False, 90, "samples"),
    "unet3d": Benchmark("3D U-Net", "dice", True, 0.908, samples=168),
}
"""By MLPerf's name in rcps_NAME.json, of all rounds up to Training 6.1 and HPC 3.0"""
POINT = dict[str, TypedDict("Point", {"Benchmark": str, "BS": int, "Hyperparams": dict[str, Any]})]
NUMBERS = ("Epochs to converge", "samples to converge")
RATE = re.compile(r"(base_learning_rate|_lr)$|^(lr|learning_rate)$")
MOST = {"epochs": 1e4, "samples": 1e13, "steps": 1e9, "tokens": 1e16}
"""More than any training takes"""
RETINANET = 20
"""Epochs up to which "ssd" is RetinaNet, as in rounds 2.0 to 4.1, which takes 4 to 16; SSD takes 50 to 90"""
SAMPLES = 10_000
"""Above which numbers of 3D U-Net are samples, as from round 3.1 on"""


def read_convergence_points(paths: Sequence[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs of MLPerf's reference convergence points: epochs or samples to the target by batch size, without times."""
    rows = []
    for path in paths:
        fix = f"Each point has Benchmark ({', '.join(BENCHMARKS)}), BS, Hyperparams and {' or '.join(NUMBERS)}."
        points = read_json(path, POINT, fix=fix)
        for name, point in points.items():
            try:
                rows += _runs_of(name, point)
            except ValueError as error:
                raise DataError(
                    f"these are no convergence points that labkit knows ({error}).", file=path, fix=fix
                ) from error
    if not rows:
        raise UserError(f"{paths[0]} holds no convergence point: give a file that does.")
    runs = pd.DataFrame(rows).assign(
        tier=None, unreached="censored", energy_note="no power was published", wall_s=float("nan")
    )
    twice = runs["run"].duplicated()
    if twice.any():
        raise UserError(f"{runs.loc[twice, 'run'].iloc[0]} is in two of the files: leave one of them out.")
    return runs, _curves(runs.assign(value=runs["target"]))


def _runs_of(name: str, point: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of one point; a ValueError names what is wrong with it."""
    if point["Benchmark"] not in BENCHMARKS:
        raise ValueError(f"{name}.Benchmark is {point['Benchmark']!r}, whose metric and target are not in such files")
    benchmark = BENCHMARKS[point["Benchmark"]]
    keys = [key for key in NUMBERS if key in point]
    if len(keys) != 1:
        raise ValueError(f"{name} must have one of {' and '.join(NUMBERS)}")
    numbers, batch_size = point[keys[0]], point["BS"]
    check_shape(numbers, list[float], f"{name}.{keys[0]}")
    if point["Benchmark"] == "ssd" and max(numbers, default=0) <= RETINANET:
        benchmark = BENCHMARKS["retinanet"]
    unit = "samples" if point["Benchmark"] == "unet3d" and max(numbers, default=0) > SAMPLES else benchmark.unit
    settings = point["Hyperparams"]
    rate = next(
        (settings[key] for key in ("opt_base_learning_rate", *settings) if RATE.search(key) and key in settings), None
    )
    check_shape(rate, float | None, f"{name}.Hyperparams: the learning rate")
    if not numbers:
        raise ValueError(f"{name}.{keys[0]} is empty")
    if odd := [number for number in numbers if not benchmark.first < number <= MOST[unit]]:
        raise ValueError(f"{name}.{keys[0]} has {odd[0]}, which are no {unit} of a training")
    if not 0 < batch_size <= MOST["samples"] or (rate is not None and not 0 < rate <= MOST["epochs"]):
        raise ValueError(f"{name} has BS {batch_size} and learning rate {rate}, which must be above 0")
    runs = []
    for seed, number in enumerate(numbers, start=1):
        epochs = round(number - benchmark.first, 6) if unit == "epochs" else float("nan")
        made = {"epochs": benchmark.samples * epochs, "samples": number, "steps": number * batch_size}
        runs.append(
            {
                "run": f"{name}-{seed}".replace("_", "-"),
                "job": f"{benchmark.title} (MLPerf)",
                "device": str(point.get("Platform") or "TBD").replace("TBD", "platform not stated"),
                "seed": seed,
                "batch_size": batch_size,
                "learning_rate": float("nan") if rate is None else float(rate),
                "metric": benchmark.metric,
                "higher_is_better": benchmark.higher_is_better,
                "target": benchmark.target,
                "epochs": number / benchmark.samples if unit == "samples" else epochs,
                "samples": float(made[unit] if unit in made else number / benchmark.samples),
            }
        )
    return runs


def _curves(evaluations: pd.DataFrame) -> pd.DataFrame:
    frame = evaluations.reindex(columns=["run", "epochs", "samples", "wall_s", "energy_j", "value"])
    return frame.assign(train_s=frame["wall_s"]).sort_values(["run", "epochs"], ignore_index=True)


def _csv(path: Path, columns: list[str]) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:  # pandas' own are of ValueError
        raise DataError(f"this file cannot be read ({error}).", file=path, fix=f"Give {FORMATS}.") from error
    if frame.empty:
        raise DataError("this file has no rows.", file=path, fix="Leave it out, or get it again.")
    if absent := [name for name in columns if name not in frame]:
        raise DataError(
            f"this file has no column {absent[0]!r}, but {', '.join(map(str, frame))}.",
            file=path,
            fix=f"A file of this name has {', '.join(columns)}.",
        )
    for name in columns:
        if name not in ("dataset", "network", "optimizer"):
            numbers = pd.to_numeric(frame[name], errors="coerce")
            odd = ~(numbers > 0) & (frame[name].notna() | (name != "target_epoch"))
            _refuse(odd, path, name, "this is no number above 0", "Only target_epoch may be empty: never met.")
            frame[name] = numbers
    return frame[columns]


def _refuse(rows: pd.Series, path: Path, field: str, what: str, fix: str) -> None:
    if rows.any():
        raise DataError(f"{what}.", file=path, line=int(rows.to_numpy().argmax()) + 2, field=field, fix=fix)


def write_recording(folder: Path, runs: pd.DataFrame, evaluations: pd.DataFrame, **words: str) -> Path:
    """Write runs and evaluations and their card as a recording.

    Args:
        folder: made by this; the recording has its name.
        words: those of `Card` that are known, `title`, `cite` and `derived` among them.

    Raises:
        UserError: there is something of that name.
    """
    if folder.exists():
        raise UserError(f"{folder} is there already: choose another --name, or move it away.")
    words |= {"devices": runs["device"].drop_duplicates().tolist()}
    temporary = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    runs.to_parquet(temporary / RUNS, index=False)
    evaluations[evaluations["run"].isin(runs["run"])].to_parquet(temporary / EVALUATIONS, index=False)
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in words.items()]  # TOML, too
    (temporary / CARD).write_text("".join(lines), encoding="utf-8")
    temporary.replace(folder)
    read_card(folder)  # which refuses a card with words that no card has
    return folder


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make a recording of files that others published.")
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help=f"files of one source: {FORMATS}")
    add("--name", metavar="NAME", help="name of the recording's folder in --runs-dir (default: that of the first file)")
    add("--cite", required=True, metavar="WHO", help="who measured, as legends show it: 'You et al. 2023'")
    add("--date", default="not stated", metavar="WHEN", help="when it was measured")
    add("--source", default="not stated", metavar="WHERE", help="where the files are from, and their licence")
    add_flags(parser, "only", "runs_dir")
    args = parser.parse_args(argv)
    name = args.name or args.files[0].stem
    if Path(name).name != name:
        raise UserError(f"--name {name} is a path: give the name of a folder in --runs-dir.")
    runs, evaluations = read_published(args.files)
    runs = chosen(runs, read_only(args.only))
    names = ", ".join(path.name for path in args.files)
    words = {"title": f"{', '.join(runs['job'].unique())}, imported", "derived": f"read by labkit from {names}"}
    words |= {"cite": args.cite, "authors": args.cite, "date": args.date, "source": args.source}
    folder = write_recording(args.runs_dir / name, runs, evaluations, **words)
    print(f"{len(runs):,} recorded runs of {', '.join(runs['device'].unique())} in {folder}")
    print(f"labkit report --recorded {folder}; in Python labkit.runs.recorded({str(folder)!r})")


if __name__ == "__main__":
    try:
        main()
    except (UserError, DataError) as error:
        sys.exit(str(error))
