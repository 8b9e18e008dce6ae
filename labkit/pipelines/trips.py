"""Trips: which kind of shopping a trip is, from its lines (groupby features, boosting): `labkit pipeline run trips`."""

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

import labkit
from labkit.jobs import read_job
from labkit.pipelines import data, ways
from labkit.pipelines.kinds import TripsJob
from labkit.pipelines.made import held_out, stage


def add_moments(matrix: np.ndarray, trips: np.ndarray, about: pd.DataFrame) -> np.ndarray:
    """The features with the day and the hour of each trip, as float32.

    The day counts from the first trip: trees, forests and boosting cut features to float32, which holds seconds of
    Unix time only to two minutes.
    """
    since = about.set_index("trip").loc[trips, "time_s"].to_numpy() - data.EPOCH_S
    return np.column_stack([matrix, since // 86_400, since % 86_400 / 3600]).astype("float32")  # (trips, 43)


def clean(lines: pd.DataFrame) -> pd.DataFrame:
    return lines[lines["quantity"] != 0].dropna()


def fit(matrix: np.ndarray, kinds: np.ndarray, job: TripsJob) -> HistGradientBoostingClassifier:
    model = HistGradientBoostingClassifier(max_iter=job.rounds, early_stopping=False, random_state=job.seed)
    return model.fit(matrix, kinds)


def make_model(job: TripsJob) -> tuple[HistGradientBoostingClassifier, np.ndarray]:
    """The model without a run around it, for a server, and the features (n, 43) of the trips that are held out."""
    folder = data.ensure("trips", job.scale, job.seed)
    lines, about = (pd.read_csv(folder / name) for name in ("lines.csv", "trips.csv"))
    trips, matrix = ways.make_features(clean(lines), job.way, job.processes)
    matrix, first = add_moments(matrix, trips, about), held_out(len(trips))
    return fit(matrix[:first], about.set_index("trip").loc[trips[:first], "type"].to_numpy(), job), matrix[first:]


def main() -> None:
    job = read_job(TripsJob)
    folder = data.ensure("trips", job.scale, job.seed)
    files = [folder / "lines.csv", folder / "trips.csv"]
    with labkit.Run("trips", config=job.config(), seed=job.seed) as run:
        with stage(run, job, "load") as made:
            lines, about = map(pd.read_csv, files)
            made(len(about), sum(path.stat().st_size for path in files))
        with stage(run, job, "clean") as made:
            lines = clean(lines)
            made(len(about), [lines, about])
        with stage(run, job, "features") as made:
            trips, matrix = ways.make_features(lines, job.way, job.processes)
            matrix = add_moments(matrix, trips, about)
            kinds = about.set_index("trip").loc[trips, "type"].to_numpy()
            made(len(trips), matrix)
        first = held_out(len(trips))
        with stage(run, job, "train"):
            model = fit(matrix[:first], kinds[:first], job)
        with stage(run, job, "serve") as made:
            predicted = model.predict(matrix[first:]).astype("int8")
            made(len(predicted), predicted)
        run.evaluate(accuracy=float((predicted == kinds[first:]).mean()))


if __name__ == "__main__":
    main()
