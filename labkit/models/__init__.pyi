from .dlrm import (
    CompressedTables as CompressedTables,
    Dlrm as Dlrm,
    DlrmConfig as DlrmConfig,
    RowwiseAdagrad as RowwiseAdagrad,
    TableAFeature as TableAFeature,
)
from .speech import (
    BothWays as BothWays,
    ConvBlock as ConvBlock,
    SpeechConfig as SpeechConfig,
    SpeechModel as SpeechModel,
    bins_of as bins_of,
)
