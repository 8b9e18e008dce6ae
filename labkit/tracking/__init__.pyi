from . import energy as energy
from .binding import bind_process as bind_process
from .checkpoint import load_checkpoint as load_checkpoint
from .command import SEED as SEED, ScriptCommand as ScriptCommand
from .crossings import CONFIRM as CONFIRM, crossing as crossing
from .ending import Enough as Enough, RunFailed as RunFailed, StopRequest as StopRequest, unreached as unreached
from .events import (
    Notice as Notice,
    OnEvent as OnEvent,
    Preparing as Preparing,
    Progress as Progress,
    Ready as Ready,
    Started as Started,
    read_event as read_event,
)
from .goal import (
    METRICS as METRICS,
    Metric as Metric,
    Target as Target,
    evaluated_name as evaluated_name,
    metric_named as metric_named,
)
from .harness import (
    Harness as Harness,
    current_harness as current_harness,
    device as device,
    tell_preparing as tell_preparing,
    whole_device as whole_device,
)
from .launch import LaunchedRun as LaunchedRun, WorkerFailed as WorkerFailed
from .phases import (
    BACKWARD as BACKWARD,
    FORWARD as FORWARD,
    INPUT as INPUT,
    OPTIMISER as OPTIMISER,
    SYNC as SYNC,
    TO_DEVICE as TO_DEVICE,
    phase as phase,
    watched_by as watched_by,
)
from .progress_line import (
    ProgressLine as ProgressLine,
    headline as headline,
    progress_text as progress_text,
    time_left_s as time_left_s,
)
from .run import Run as Run, open_run as open_run
from .script import exit_status as exit_status, print_error as print_error, run_command as run_command
