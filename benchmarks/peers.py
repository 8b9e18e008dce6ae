"""labkit beside other libraries from PyPI: `make bench-peers`, which installs them in .venv/peers first.

Each peer takes a step on the same made-up batches as ours, in turn. TorchRec has the same DLRM, and FBGEMM its table
update; DeepCTR-Torch and torch-rechub have no DLRM, so their DeepFM gets the same tables and the same top MLP: another
model of like size. SpeechBrain computes the same 80 log-mel bins. A peer that does not load is named with its error.
"""

import argparse
import sys
from collections.abc import Callable
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from dlrm_shapes import LR, SHAPES, Batch, Shape, made_up_batch, precisions, stepper
from measuring import Ratio, in_turn, report, speed_ups
from same_model import PEERS, torchrec_way
from torch import nn

from labkit.hardware import keep_memory
from labkit.jobs.dlrm import build_model

BATCH, TURNS = 2048, 15
Step = Callable[[Batch], object]


def torchrec_dlrm(shape: Shape) -> Step:
    """TorchRec's DLRM, unsharded, and its own layout of the batch."""
    way = torchrec_way(shape)
    return lambda batch: way.step(way.prepare(batch))


def fbgemm_tables(shape: Shape) -> Step:
    """Our DLRM with FBGEMM's table-batched embeddings, which update themselves in the backward pass."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    config = shape.model
    specs = [(rows, config.embedding_dim, EmbeddingLocation.HOST, ComputeDevice.CPU) for rows in config.num_rows]
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        specs, optimizer=EmbOptimType.EXACT_SGD, learning_rate=LR, pooling_mode=PoolingMode.SUM
    )
    model = build_model(config, "fast")
    dense_parameters = [*model.bottom.parameters(), *model.top.parameters()]
    optimiser = torch.optim.SGD(dense_parameters, lr=LR, fused=True)

    def step(batch: Batch) -> None:
        dense, categorical, label = batch
        count = config.num_tables * len(label)
        offsets = torch.arange(count + 1) * shape.pooling_factor
        embedded = tables(categorical.transpose(0, 1).flatten().long(), offsets)  # (B, F·D)
        optimiser.zero_grad()
        bottom = model.bottom(dense)
        together = torch.cat([bottom, embedded], 1).view(len(label), -1, config.embedding_dim)
        logit = model.top(torch.cat([bottom, model.interaction(together)], 1)).squeeze(1)
        F.binary_cross_entropy_with_logits(logit, label).backward()
        optimiser.step()

    return step


def deepctr_deepfm(shape: Shape) -> Step:
    """DeepCTR-Torch's DeepFM."""
    from deepctr_torch.inputs import DenseFeat, SparseFeat
    from deepctr_torch.models import DeepFM

    config = shape.model
    dense_columns = [DenseFeat(f"I{column}", 1) for column in range(config.dense_dim)]
    sparse_columns = [
        SparseFeat(f"C{table}", rows, embedding_dim=config.embedding_dim) for table, rows in enumerate(config.num_rows)
    ]
    columns = sparse_columns + dense_columns
    model = DeepFM(columns, columns, dnn_hidden_units=config.top_mlp[:-1], task="binary", device="cpu")
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)

    def step(batch: Batch) -> None:
        dense, categorical, label = batch
        optimiser.zero_grad()
        clicked = model(torch.cat([categorical[:, :, 0].float(), dense], 1)).squeeze(1)
        F.binary_cross_entropy(clicked, label).backward()
        optimiser.step()

    return step


def rechub_deepfm(shape: Shape) -> Step:
    """torch-rechub's DeepFM."""
    from torch_rechub.basic.features import DenseFeature, SparseFeature
    from torch_rechub.models.ranking import DeepFM

    config = shape.model
    dense_features = [DenseFeature(f"I{column}") for column in range(config.dense_dim)]
    sparse_features = [
        SparseFeature(f"C{table}", vocab_size=rows, embed_dim=config.embedding_dim)
        for table, rows in enumerate(config.num_rows)
    ]
    model = DeepFM(
        deep_features=[*dense_features, *sparse_features],
        fm_features=sparse_features,
        mlp_params={"dims": [*config.top_mlp[:-1]], "dropout": 0.0, "activation": "relu"},
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)

    def step(batch: Batch) -> None:
        dense, categorical, label = batch
        features = {f"I{column}": dense[:, column] for column in range(config.dense_dim)}
        features |= {f"C{table}": categorical[:, table, 0].long() for table in range(config.num_tables)}
        optimiser.zero_grad()
        F.binary_cross_entropy(model(features), label).backward()
        optimiser.step()

    return step


PEER_STEPS = {
    "TorchRec DLRM, unsharded": torchrec_dlrm,
    "our DLRM with FBGEMM tables": fbgemm_tables,
    "DeepCTR-Torch DeepFM": deepctr_deepfm,
    "torch-rechub DeepFM": rechub_deepfm,
}


def speech_features() -> list[Ratio]:
    """Log-mel features of 256 utterances: SpeechBrain's, in batches, against ours."""
    # SpeechBrain imports torchaudio, whose compiled part does not load beside a CPU-only torch, and is not needed
    without = {"_IS_TORCHAUDIO_EXT_AVAILABLE": False, "_IS_ALIGN_AVAILABLE": False, "fail_if_no_align": lambda f: f}
    sys.modules["torchaudio._extension"] = SimpleNamespace(**without)
    from speechbrain.lobes.features import Fbank

    from labkit.data.speech import WaveformUtterances, log_mel

    waves = WaveformUtterances("shipped", "train").waves[:256]
    fbank = Fbank(n_mels=80, sample_rate=16000)

    def theirs() -> None:
        for start in range(0, len(waves), 32):
            batch = [torch.from_numpy(wave) for wave in waves[start : start + 32]]
            with torch.inference_mode():
                fbank(nn.utils.rnn.pad_sequence(batch, True))

    taken = in_turn({"SpeechBrain": theirs, "labkit": lambda: log_mel(waves)}, turns=7)
    return speed_ups("features of 256 utterances", taken, base="SpeechBrain", note="than SpeechBrain")


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    if not PEERS.is_dir():
        raise SystemExit(f"{PEERS} is missing: run `make bench-peers`, which installs the peers there.")
    keep_memory()  # as runs of labkit do
    torch.manual_seed(0)
    np.random.seed(0)
    shape, ratios, failures = SHAPES["small"], [], {}
    batches = cycle([made_up_batch(shape, BATCH) for _ in range(4)])
    for name, peer in PEER_STEPS.items():
        try:
            step = peer(shape)
            step(next(batches))
        except Exception as error:  # whatever a peer raises, the others go on
            failures[name] = f"{type(error).__name__}: {error}"
            continue
        ways = {name: lambda step=step: step(next(batches))}
        for precision in precisions():
            _, own = stepper(shape.model)
            ways[f"labkit, {precision}"] = lambda own=own, precision=precision: own(next(batches), precision)
        ratios += speed_ups(f"step, small, batch {BATCH}", in_turn(ways, turns=TURNS), base=name, note=f"than {name}")
    try:
        ratios += speech_features()
    except Exception as error:
        failures["SpeechBrain"] = f"{type(error).__name__}: {error}"
    for name, error in failures.items():
        print(f"{name}: did not run: {error}")
    report("peers", ratios, failures=failures)


if __name__ == "__main__":
    main()
