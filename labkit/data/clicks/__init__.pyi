from .batches import ClickBatches as ClickBatches, click_metrics as click_metrics, in_order as in_order
from .generate import (
    SYNTHETIC as SYNTHETIC,
    ClickGenerator as ClickGenerator,
    GeneratorConfig as GeneratorConfig,
    ZipfSampler as ZipfSampler,
    write_clicks as write_clicks,
)
from .load import ClickLog as ClickLog, ClickSplit as ClickSplit, load_clicks as load_clicks
