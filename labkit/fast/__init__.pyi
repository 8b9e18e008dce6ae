from .dlrm import (
    EmbeddingTables as EmbeddingTables,
    Lookup as Lookup,
    PairwiseProducts as PairwiseProducts,
    exchanging_rows as exchanging_rows,
    look_up as look_up,
)
from .optimisers import (
    autocast as autocast,
    chosen_precision as chosen_precision,
    fast_optimisers as fast_optimisers,
    quick_optimiser as quick_optimiser,
    without_compiler as without_compiler,
)
from .speech import ChannelsLastBlock as ChannelsLastBlock, UnpackedBothWays as UnpackedBothWays
