from .batches import ClickBatches as ClickBatches, in_order as in_order
from .generate import (
    SYNTHETIC as SYNTHETIC,
    ClickGenerator as ClickGenerator,
    GeneratorConfig as GeneratorConfig,
    ZipfSampler as ZipfSampler,
    write_clicks as write_clicks,
)
from .load import load_clicks as load_clicks
from .prepared import ClickLog as ClickLog, ClickSplit as ClickSplit, click_metrics as click_metrics
