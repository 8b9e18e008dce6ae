from .check import (
    CheckedQueueJob as CheckedQueueJob,
    MixCheck as MixCheck,
    check_mix as check_mix,
    check_queue as check_queue,
    job_memory as job_memory,
    refuse_if_any as refuse_if_any,
)
from .live_queue import (
    LiveDevice as LiveDevice,
    check_here as check_here,
    live_devices as live_devices,
    new_queue as new_queue,
    pack as pack,
    predict as predict,
    resume_queue as resume_queue,
    run_queue as run_queue,
    schedule_in as schedule_in,
    telling as telling,
    tracked_jobs as tracked_jobs,
)
from .memory_probe import GROWTH_BYTES as GROWTH_BYTES, first_steps_bytes as first_steps_bytes
from .modes import mode_shares as mode_shares, modes_here as modes_here
from .packing import (
    CARMA_ENERGY as CARMA_ENERGY,
    CARMA_MAKESPAN as CARMA_MAKESPAN,
    POLICIES as POLICIES,
    Admission as Admission,
    DeviceState as DeviceState,
    cpu_admission as cpu_admission,
    get_policy as get_policy,
    pack_report as pack_report,
    simulate as simulate,
)
from .queue import (
    PROFILES_FILE as PROFILES_FILE,
    Attempt as Attempt,
    JobProfile as JobProfile,
    PackingDevice as PackingDevice,
    QueuedJob as QueuedJob,
    RecordedJob as RecordedJob,
    RecordedPair as RecordedPair,
    RecordedProfiles as RecordedProfiles,
    read_queue as read_queue,
    read_recorded as read_recorded,
    shared_slowdown as shared_slowdown,
)
from .rounds import (
    collocate as collocate,
    mix_in as mix_in,
    mix_of as mix_of,
    new_mix as new_mix,
    read_mix as read_mix,
    resume_mix as resume_mix,
    run_mix as run_mix,
)
from .schedule import Schedule as Schedule, side_by_side as side_by_side
from .shares import Place as Place, Share as Share, leased_cpu as leased_cpu
from .verdicts import (
    Verdict as Verdict,
    advise as advise,
    disturbed_rounds as disturbed_rounds,
    not_attributed as not_attributed,
    verdict as verdict,
)
