"""Spam: which mails are unwanted, from their words: `labkit pipeline run spam`."""

import pandas as pd
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.naive_bayes import MultinomialNB

import labkit
from labkit.jobs import read_job
from labkit.pipelines import data
from labkit.pipelines.kinds import SpamJob
from labkit.pipelines.made import auc, held_out, stage


def main() -> None:
    job = read_job(SpamJob)
    path = data.ensure("spam", job.scale, job.seed) / "mails.csv"
    with labkit.Run("spam", config=job.config(), seed=job.seed) as run:
        with stage(run, job, "load") as made:
            mails = pd.read_csv(path)
            made(len(mails), path.stat().st_size)
        with stage(run, job, "clean") as made:
            mails = mails.dropna()
            texts = mails["text"].str.replace(r"<[^>]*>", " ", regex=True).str.lower()
            made(len(texts), texts)
        with stage(run, job, "features") as made:
            counter = HashingVectorizer(n_features=job.buckets, alternate_sign=False, norm=None, dtype="float32")
            counts = counter.transform(texts)  # (mails, buckets), sparse
            made(len(texts), counts)
        first, is_spam = held_out(len(mails)), mails["is_spam"].to_numpy()
        with stage(run, job, "train"):
            model = MultinomialNB().fit(counts[:first], is_spam[:first])
        with stage(run, job, "serve") as made:
            scores = model.predict_proba(counts[first:])[:, 1].astype("float32")
            made(len(scores), scores)
        run.evaluate(auc=auc(is_spam[first:], scores, job.scale))


if __name__ == "__main__":
    main()
