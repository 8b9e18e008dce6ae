from . import dlrm as dlrm, speech as speech
from .dlrm import OPTIMISERS as OPTIMISERS, build_optimizers as build_optimizers, evaluate as evaluate
from .dlrm_shape import random_batches as random_batches, shape_config as shape_config
from .job import (
    Job as Job,
    ScriptJob as ScriptJob,
    as_flags as as_flags,
    job_flags as job_flags,
    read_flags as read_flags,
    read_job as read_job,
    setting as setting,
)
from .launching import (
    KITS_SCRIPTS as KITS_SCRIPTS,
    find_script as find_script,
    job_command as job_command,
    job_from_json as job_from_json,
    known_job as known_job,
    named_job as named_job,
    why_slower as why_slower,
)
from .presets import NO_TARGET as NO_TARGET
from .settings import (
    JOBS as JOBS,
    MAX_EPOCHS as MAX_EPOCHS,
    DlrmJob as DlrmJob,
    ShapeJob as ShapeJob,
    SpeechJob as SpeechJob,
    TrainingJob as TrainingJob,
    get_preset as get_preset,
)
from .speech import build_optimizer as build_optimizer, load_data as load_data
