from .conv_block import ChannelsLastBlock as ChannelsLastBlock
from .interaction import PairwiseProducts as PairwiseProducts
from .lstm import UnpackedBothWays as UnpackedBothWays
from .optimisers import (
    fast_optimisers as fast_optimisers,
    quick_optimiser as quick_optimiser,
    without_compiler as without_compiler,
)
from .precision import autocast as autocast, chosen_precision as chosen_precision
from .tables import EmbeddingTables as EmbeddingTables, look_up as look_up
