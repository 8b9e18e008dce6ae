from .batches import ClickBatches as ClickBatches, in_order as in_order
from .generate import ClickGenerator as ClickGenerator, GeneratorConfig as GeneratorConfig, ZipfSampler as ZipfSampler
from .load import load_clicks as load_clicks
from .metrics import click_metrics as click_metrics
from .prepared import ClickLog as ClickLog, ClickSplit as ClickSplit
from .synthetic import SYNTHETIC as SYNTHETIC, write_clicks as write_clicks
