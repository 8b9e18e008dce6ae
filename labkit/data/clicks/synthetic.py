"""Generated click logs with names, prepared like any other."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from labkit.data.clicks.generate import ClickGenerator, GeneratorConfig
from labkit.data.clicks.metrics import auc
from labkit.data.clicks.prepared import SPLITS, ClickWriter, write_meta
from labkit.data.store import Progress

SYNTHETIC = {
    "synthetic": GeneratorConfig(),
    "synthetic-small": GeneratorConfig(
        train_rows=50_000,
        validation_rows=6_000,
        test_rows=6_000,
        num_rows=tuple(int(50 * 40 ** (index / 7)) for index in range(8)),
    ),
    # The shapes of the reference DLRM's benchmark preset (facebookresearch/dlrm, bench/).
    "synthetic-benchmark": GeneratorConfig(
        train_rows=40_960,
        validation_rows=8_192,
        test_rows=8_192,
        dense_dim=512,
        num_rows=(1_000_000,) * 8,
        pooling_factor=100,
    ),
}
"""The generated datasets by name."""


def config_bytes(config: GeneratorConfig) -> int:
    """Bytes of the prepared rows."""
    rows = config.train_rows + config.validation_rows + config.test_rows
    return rows * (4 * config.dense_dim + 4 * len(config.num_rows) * config.pooling_factor + 1)


def column_names(config: GeneratorConfig) -> tuple[list[str], list[str]]:
    """The names of the dense and of the categorical features, as Criteo's are called."""
    kinds = (("I", config.dense_dim), ("C", len(config.num_rows)))
    return tuple([f"{letter}{number}" for number in range(1, count + 1)] for letter, count in kinds)


def prepare_synthetic(
    folder: Path, config: GeneratorConfig, *, name: str, fingerprint: str, progress: Progress
) -> None:
    """Generate a click log into `folder`; `info` holds what the true probabilities reach."""
    generator, (dense_names, categorical_names) = ClickGenerator(config), column_names(config)
    splits = {split: getattr(config, f"{split}_rows") for split in SPLITS}
    total, clicks, truth = sum(splits.values()), 0, {}
    with ClickWriter(
        folder,
        dense_dim=config.dense_dim,
        num_tables=len(config.num_rows),
        pooling_factor=config.pooling_factor,
    ) as writer:
        for split, rows in splits.items():
            labels, probabilities = [], []
            for block in generator.blocks(split, rows):
                writer.append(block.dense, block.categorical, block.label)
                labels.append(block.label)
                probabilities.append(block.probability)
                progress(writer.rows / total, f"{writer.rows:,} of {total:,} rows made")
            label, probability = np.concatenate(labels), np.concatenate(probabilities)
            truth[split] = auc(label, probability)
            clicks += int(label.sum()) if split == "train" else 0
    write_meta(
        folder,
        name=name,
        dense_names=dense_names,
        categorical_names=categorical_names,
        table_rows=list(config.num_rows),
        pooling_factor=config.pooling_factor,
        fingerprint=fingerprint,
        splits=splits,
        info={
            "generator": asdict(config),
            "rows": total,
            "base_rate": clicks / config.train_rows,
            "bayes_auc": truth["test"],
            "bayes_auc_validation": truth["validation"],
            "skipped": {"rows": 0, "first": []},
        },
    )
