from . import energy as energy
from .ending import Enough as Enough, RunFailed as RunFailed, StopRequest as StopRequest, in_notebook as in_notebook
from .events import (
    BACKWARD as BACKWARD,
    FORWARD as FORWARD,
    INPUT as INPUT,
    OPTIMISER as OPTIMISER,
    SYNC as SYNC,
    TO_DEVICE as TO_DEVICE,
    Notice as Notice,
    OnEvent as OnEvent,
    Preparing as Preparing,
    Progress as Progress,
    ProgressLine as ProgressLine,
    Ready as Ready,
    Started as Started,
    headline as headline,
    phase as phase,
    progress_text as progress_text,
    read_event as read_event,
    time_left_s as time_left_s,
    watched_by as watched_by,
)
from .forward import VARIABLE as VARIABLE
from .goal import (
    CONFIRM as CONFIRM,
    METRICS as METRICS,
    Metric as Metric,
    Target as Target,
    crossing as crossing,
    evaluated_name as evaluated_name,
    metric_named as metric_named,
)
from .harness import (
    SEED as SEED,
    Harness as Harness,
    ScriptCommand as ScriptCommand,
    current_harness as current_harness,
    device as device,
    tell_preparing as tell_preparing,
    whole_device as whole_device,
)
from .log import load_checkpoint as load_checkpoint
from .optimisers import (
    OptimiserSteps as OptimiserSteps,
    Region as Region,
    is_in_backward as is_in_backward,
    replaced as replaced,
)
from .position import ChangedLoader as ChangedLoader
from .run import Run as Run, open_run as open_run
from .script import (
    NOT_COUNTED as NOT_COUNTED,
    exit_status as exit_status,
    print_error as print_error,
    run_command as run_command,
)
from .worker import WorkerFailed as WorkerFailed, bind_process as bind_process
