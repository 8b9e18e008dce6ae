"""How much batching saves: log-mel features one utterance at a time, and in batches of like length.

Run it with `python benchmarks/speech_features.py`. Both ways run in turn on the same waveforms and one thread, so
that a busy machine slows both; the time is what the processor spent, and the ratio of each turn is what counts.
"""

import argparse
import statistics
import time

import torch

from labkit.data import BadRows
from labkit.data.speech import decode, log_mel, log_mel_batch, read_source

UTTERANCES = 256
TURNS = 7


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    source = read_source("shipped", BadRows("error"), seed=0)
    start = time.process_time()
    waves = [decode(utterance)[0] for utterance in source.utterances[:UTTERANCES]]
    decoding_s = time.process_time() - start
    log_mel(waves[:2])  # builds the filter bank
    single_s, batched_s = [], []
    for _ in range(TURNS):
        start = time.process_time()
        for wave in waves:
            log_mel_batch([wave])
        single_s.append(time.process_time() - start)
        start = time.process_time()
        log_mel(waves)
        batched_s.append(time.process_time() - start)
    ratios = [single / batched for single, batched in zip(single_s, batched_s, strict=True)]
    print(f"{UTTERANCES} utterances of the shipped corpus, one thread, {TURNS} turns, median")
    print(f"decoded                {1000 * decoding_s / UTTERANCES:>8.3f} ms an utterance")
    print(f"features, one by one   {1000 * statistics.median(single_s) / UTTERANCES:>8.3f} ms an utterance")
    print(f"features, in batches   {1000 * statistics.median(batched_s) / UTTERANCES:>8.3f} ms an utterance")
    print(f"ratio                  {statistics.median(ratios):>8.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
