"""Commands: what a short spoken command says, by the kit's recogniser: `labkit pipeline run commands`."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import soundfile
import torch

import labkit
from labkit.data import BadRows, speech
from labkit.jobs import SpeechJob, read_job
from labkit.jobs.speech import build_model, evaluate, loss_of
from labkit.models import SpeechConfig
from labkit.pipelines.kinds import CommandsJob
from labkit.pipelines.made import held_out, stage

UTTERANCES = 500
"""Utterances at scale 1; beyond those of the corpus that ships, they are said again with noise"""


def read_utterances(count: int, seed: int) -> tuple[list[speech.Utterance], list[np.ndarray], int]:
    """Utterances with their waves float32 (n,), those for training first, and the bytes of their files."""
    source = speech.read_source("shipped", BadRows("error"), seed)
    usable = speech.usable_utterances(source, BadRows("error"))
    random, utterances, waves, reader = np.random.default_rng(seed), [], [], speech.Reader()
    for split, number in (("train", held_out(count)), ("test", count - held_out(count))):
        of_split = [each for each in usable if each.split == split]
        for index in range(number):
            again, at = divmod(index, len(of_split))
            wave = speech.wave_of(of_split[at], reader)
            utterances.append(of_split[at])
            waves.append(wave + np.float32(0.003 * again) * random.standard_normal(len(wave), dtype=np.float32))
    reader.close()
    files = {segment.audio for each in usable for segment in each.segments}  # of many utterances each
    bytes_per_s = sum(path.stat().st_size for path in files) / sum(soundfile.info(path).duration for path in files)
    return utterances, waves, round(bytes_per_s * sum(map(len, waves)) / speech.SAMPLE_RATE_HZ)


def by_voice(utterances: Sequence[speech.Utterance], waves: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Features float32 (T, F) of each wave, normalised by its speaker's voice."""
    features, voices = speech.features_of(list(waves), "log-mel"), {}
    for each, values in zip(utterances, features, strict=True):
        voices.setdefault(each.speaker, speech.Voice("log-mel")).listen(values)
    return [voices[each.speaker].normalised(values) for each, values in zip(utterances, features, strict=True)]


def as_split(utterances: Sequence[speech.Utterance], features: Sequence[np.ndarray]) -> speech.SpeechSplit:
    lengths = np.array([len(each) for each in features], np.int32)
    texts, speakers = [each.text for each in utterances], [each.speaker or "" for each in utterances]
    return speech.SpeechSplit(lengths, texts, speakers, np.concatenate(features).astype("float16"))


def main() -> None:
    job = read_job(CommandsJob)
    count = max(5, round(UTTERANCES * job.scale))
    first = held_out(count)
    with labkit.Run("commands", config=job.config(), seed=job.seed) as run:
        with stage(run, job, "load") as made:
            utterances, waves, file_bytes = read_utterances(count, job.seed)
            made(count, file_bytes)
        with stage(run, job, "clean") as made:
            waves = [wave - wave.mean() for wave in waves]
            made(count, waves)
        with stage(run, job, "features") as made:
            features = by_voice(utterances, waves)
            made(count, features)
        with stage(run, job, "train"):
            torch.manual_seed(job.seed)
            train = as_split(utterances[:first], features[:first])
            shape = SpeechConfig(vocabulary=len(train.alphabet), **SpeechJob().preset_values.model)
            resolution = speech.fitting_resolution(train, shape.strides)
            model = build_model(replace(shape, strides=resolution.strides), "fast")
            optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
            for epoch in range(job.epochs):
                for batch in speech.BucketedBatches(train, job.batch_size, job.seed, resolution.kept).at(epoch, 0):
                    optimizer.zero_grad()
                    loss = loss_of(model, batch, "cpu")
                    loss.backward()
                    optimizer.step()
                    run.step(loss, samples=len(batch.texts))
        with stage(run, job, "serve") as made:
            served = as_split(utterances[first:], features[first:])
            errors = evaluate(model, speech.ByLength(served, 64), served.alphabet, "fp32", "cpu")
            made(count - first, sum(len(text) for text in served.texts))
        run.evaluate(**errors)


if __name__ == "__main__":
    main()
