"""Segments: customers of one kind, from what they bought (k-means): `labkit pipeline run segments`."""

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import StandardScaler

import labkit
from labkit.jobs import read_job
from labkit.pipelines import data
from labkit.pipelines.kinds import SegmentsJob
from labkit.pipelines.made import held_out, stage

SCORED = 2000
"""Customers of which the score is taken: it compares each with each"""


def main() -> None:
    job = read_job(SegmentsJob)
    path = data.ensure("segments", job.scale, job.seed) / "purchases.csv"
    with labkit.Run("segments", config=job.config(), seed=job.seed) as run:
        with stage(run, job, "load") as made:
            purchases = pd.read_csv(path)
            made(purchases["customer"].nunique(), path.stat().st_size)
        with stage(run, job, "clean") as made:
            purchases = purchases[purchases["amount"] > 0].dropna()
            made(purchases["customer"].nunique(), purchases)
        with stage(run, job, "features") as made:
            groups = purchases.groupby("customer")
            table = groups.agg(last=("day", "max"), count=("day", "size"), spent=("amount", "mean"))
            table["returned"], table["spent"] = groups["is_returned"].mean(), np.log(table["spent"])
            matrix = table.to_numpy("float32")  # (customers, 4)
            made(len(matrix), matrix)
        first = held_out(len(matrix))
        with stage(run, job, "train"):
            scaler = StandardScaler().fit(matrix[:first])
            model = KMeans(job.clusters, n_init=3, random_state=job.seed).fit(scaler.transform(matrix[:first]))
        with stage(run, job, "serve") as made:
            new = scaler.transform(matrix[first:])
            groups = model.predict(new).astype("int8")
            made(len(groups), groups)
        run.evaluate(silhouette=float(silhouette_score(new[:SCORED], groups[:SCORED])))


if __name__ == "__main__":
    main()
