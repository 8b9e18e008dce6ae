from . import (
    data as data,
    errors as errors,
    fast as fast,
    hardware as hardware,
    indexes as indexes,
    jobs as jobs,
    launch as launch,
    live as live,
    models as models,
    perfmodel as perfmodel,
    pipelines as pipelines,
    placement as placement,
    plots as plots,
    process as process,
    profiling as profiling,
    report as report,
    runs as runs,
    sharing as sharing,
    telemetry as telemetry,
    tracking as tracking,
    transcription as transcription,
    tta as tta,
    widgets as widgets,
)
from .errors import DataError as DataError, UserError as UserError
from .tracking import energy as energy
from .tracking.harness import device as device
from .tracking.run import Run as Run

__version__: str
