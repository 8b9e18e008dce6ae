"""The two models of the course with their fast parts in."""

from __future__ import annotations

from labkit.fast.conv_block import ChannelsLastBlock
from labkit.fast.interaction import PairwiseProducts
from labkit.fast.tables import EmbeddingTables
from labkit.models.dlrm import Dlrm, DlrmConfig
from labkit.models.speech import SpeechConfig, SpeechModel


def fast_dlrm(config: DlrmConfig) -> Dlrm:
    """`Dlrm(config)` with one table of all rows and a cheaper backward pass; the same weights from the same seed."""
    return Dlrm(config, tables=EmbeddingTables, interaction=PairwiseProducts)


def fast_speech(config: SpeechConfig) -> SpeechModel:
    """`SpeechModel(config)` with channels last; the same weights from the same seed."""
    return SpeechModel(config, block=ChannelsLastBlock)
