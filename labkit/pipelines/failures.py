"""Failures: which disks fail within a week, from their daily readings: `labkit pipeline run failures`."""

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

import labkit
from labkit.jobs import read_job
from labkit.pipelines import data
from labkit.pipelines.kinds import FailuresJob
from labkit.pipelines.made import auc, held_out, stage

WEEK = 7
READINGS = ["temperature", "sectors", "seek_ms"]


def week_features(readings: pd.DataFrame) -> np.ndarray:
    """Of each day the readings, their means over the last week of the disk, and how far they are from them.

    The rows are sorted by disk and day. A week never reaches into the disk before.
    """
    values = readings[READINGS].to_numpy("float64")
    disk, row = readings["disk"].to_numpy(), np.arange(len(readings))
    is_first = np.r_[True, disk[1:] != disk[:-1]]
    begins = np.maximum(np.maximum.accumulate(np.where(is_first, row, 0)), row - WEEK + 1)
    sums = np.vstack([np.zeros(len(READINGS)), values.cumsum(0)])
    means = (sums[row + 1] - sums[begins]) / (row + 1 - begins)[:, None]
    return np.hstack([values, means, values - means]).astype("float32")  # (days of disks, 9)


def main() -> None:
    job = read_job(FailuresJob)
    path = data.ensure("failures", job.scale, job.seed) / "disks.csv"
    with labkit.Run("failures", config=job.config(), seed=job.seed) as run:
        with stage(run, job, "load") as made:
            readings = pd.read_csv(path)
            made(len(readings), path.stat().st_size)
        with stage(run, job, "clean") as made:
            readings = readings.dropna().sort_values(["disk", "day"], kind="stable")
            made(len(readings), readings)
        with stage(run, job, "features") as made:
            matrix, fails = week_features(readings), readings["fails_within_7_days"].to_numpy()
            made(len(matrix), matrix)
        first = held_out(len(matrix))
        with stage(run, job, "train"):
            model = HistGradientBoostingClassifier(max_iter=job.rounds, early_stopping=False, random_state=job.seed)
            model.fit(matrix[:first], fails[:first])
        with stage(run, job, "serve") as made:
            scores = model.predict_proba(matrix[first:])[:, 1].astype("float32")
            made(len(scores), scores)
        run.evaluate(auc=auc(fails[first:], scores, job.scale))


if __name__ == "__main__":
    main()
