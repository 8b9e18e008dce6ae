"""From a raw Criteo file to a trained, evaluated model, once: `python benchmarks/click_pipeline.py`.

Each side is a process of its own, from its start to its end, imports included: parse and prepare, one epoch, AUC of the
test split. Both train the preset `kaggle` with SGD at a batch of 2048 on the same first six sevenths of the rows, the
textbook with plain kernels, each turn with another seed of weights and order.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from measuring import Ratio, in_own_process, report

ROWS, BATCH, LR, MIN_COUNT = 1_000_000, 2048, 0.1, 2
SIDES = ("textbook", "labkit")


def run_labkit(path: Path, seed: int) -> dict[str, float]:
    """Prepare, train and evaluate as `labkit train dlrm --preset kaggle` does; seconds of each part, and the AUC."""
    import torch
    from dlrm_shapes import stepper

    from labkit.data.clicks import ClickBatches, load_clicks
    from labkit.fast import chosen_precision
    from labkit.hardware import keep_memory
    from labkit.jobs import evaluate, get_preset
    from labkit.models import DlrmConfig

    began = time.perf_counter()
    keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        log = load_clicks(str(path), cache_dir=Path(folder), min_count=MIN_COUNT)
        prepared = time.perf_counter()
        config = DlrmConfig(len(log.dense_names), log.table_rows, **get_preset("dlrm", "kaggle").model)
        batches = ClickBatches(log.split("train"), BATCH, seed)
        torch.manual_seed(seed)
        model, step = stepper(config, lr=LR)
        precision, _ = chosen_precision("auto", "cpu")
        for batch in batches.at(0, 0):
            step(batch, precision)
        trained = time.perf_counter()
        auc = evaluate(model, log.split("test"), precision, "cpu")["auc"]
    return _parts(began, prepared, trained, auc)


def run_textbook(path: Path, seed: int) -> dict[str, float]:
    """The same with rows read by `textbook_rows` and the plain kernels in fp32."""
    import torch
    from dlrm_shapes import stepper
    from sklearn.metrics import roc_auc_score
    from textbook_rows import TextbookRows, loader

    from labkit.jobs import get_preset
    from labkit.models import DlrmConfig

    began = time.perf_counter()
    rows = TextbookRows(path, train_share=6 / 7, min_count=MIN_COUNT)
    prepared = time.perf_counter()
    torch.manual_seed(seed)
    model, step = stepper(DlrmConfig(13, rows.num_rows, **get_preset("dlrm", "kaggle").model), kernels="plain", lr=LR)
    for batch in loader(rows, range(rows.train_rows), BATCH, shuffle=True):
        step(batch)
    trained = time.perf_counter()
    labels, logits = [], []
    test_from = rows.train_rows + (len(rows) - rows.train_rows) // 2
    with torch.no_grad():
        for dense, categorical, label in loader(rows, range(test_from, len(rows)), BATCH, shuffle=False):
            logits.append(model(dense, categorical))
            labels.append(label)
    return _parts(began, prepared, trained, roc_auc_score(torch.cat(labels), torch.cat(logits)))


def _parts(began: float, prepared: float, trained: float, auc: float) -> dict[str, float]:
    ended = time.perf_counter()
    return {
        "prepare_s": prepared - began,
        "train_s": trained - prepared,
        "evaluate_s": ended - trained,
        "auc": float(auc),
    }


def run_side(side: str, path: Path, seed: int) -> dict[str, float]:
    """Run a side in a process of its own; add its whole time and the most memory it held."""
    began = time.perf_counter()
    parts, peak = in_own_process([__file__, "--side", side, "--data", str(path), "--seed", str(seed)])
    return parts | {"total_s": time.perf_counter() - began, "peak_memory_gb": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a Criteo file; default: one of a million generated rows")
    parser.add_argument("--turns", type=int, default=3, help="of both sides (3; the textbook's take minutes)")
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        print(json.dumps({"textbook": run_textbook, "labkit": run_labkit}[args.side](args.data, args.seed)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = args.data or made_up_file(Path(folder) / "criteo.tsv")
        turns = [{side: run_side(side, path, seed) for side in SIDES} for seed in range(args.turns)]
    ratios = []
    for part in ("total_s", "prepare_s", "train_s", "evaluate_s"):
        per_turn = [turn["textbook"][part] / turn["labkit"][part] for turn in turns]
        slow, fast = (median(turn[side][part] for turn in turns) for side in SIDES)
        ratios.append(
            Ratio(
                f"Criteo file to AUC: {part.removesuffix('_s')}",
                "labkit", "textbook", slow / fast, min(per_turn), max(per_turn), fast, slow, "s",
            )
        )  # fmt: skip
    for side in SIDES:
        scores = ", ".join(f"{turn[side]['auc']:.4f}" for turn in turns)
        print(f"{side}: AUC {scores}, peak memory {max(turn[side]['peak_memory_gb'] for turn in turns):.2f} GB")
    report("click_pipeline", ratios, turns=turns)


def made_up_file(path: Path) -> Path:
    """A file of generated rows in Criteo's layout."""
    subprocess.run(
        [sys.executable, "-m", "labkit", "data", "make", "clicks", "--rows", str(ROWS), "--out", str(path)],
        check=True,
        stdout=sys.stderr,
    )
    return path


if __name__ == "__main__":
    main()
