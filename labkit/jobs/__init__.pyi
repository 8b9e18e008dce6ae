from .asked import (
    KITS_SCRIPTS as KITS_SCRIPTS,
    SHAPE_SCRIPT as SHAPE_SCRIPT,
    find_script as find_script,
    job_arguments as job_arguments,
    named_job as named_job,
    refusing as refusing,
    setting_kinds as setting_kinds,
)
from .command import as_flags as as_flags, job_command as job_command, script_of as script_of
from .dlrm import OPTIMISERS as OPTIMISERS, build_optimizers as build_optimizers, evaluate as evaluate
from .dlrm_shape import random_batches as random_batches, shape_config as shape_config
from .flags import (
    ENDLESS as ENDLESS,
    MAX_EPOCHS as MAX_EPOCHS,
    OPTIMISER_STATES as OPTIMISER_STATES,
    job_flags as job_flags,
    read_arguments as read_arguments,
)
from .plain_step import PlainStep as PlainStep
from .presets import JOBS as JOBS, NO_TARGET as NO_TARGET, get_preset as get_preset
from .shape_flags import read_shape as read_shape, refuse_too_large as refuse_too_large
from .speech import build_optimizer as build_optimizer
from .watching import watch as watch
