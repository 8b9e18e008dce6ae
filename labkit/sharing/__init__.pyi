from .advice import advise as advise, not_attributed as not_attributed
from .launching.job import JobEvent as JobEvent
from .launching.jobs_record import GroupRecord as GroupRecord, RoundRecord as RoundRecord
from .launching.plan_run import RoundEvent as RoundEvent, resume_plan as resume_plan, run_plan as run_plan
from .memory_need import GROWTH_BYTES as GROWTH_BYTES, first_steps_bytes as first_steps_bytes
from .modes.choice import mode_shares as mode_shares, modes_here as modes_here
from .modes.cpu import leased_cpu as leased_cpu
from .modes.mig import made_slices as made_slices
from .modes.place import Place as Place, Share as Share
from .packing.live_device import LiveDevice as LiveDevice, live_devices as live_devices
from .packing.pack import (
    CheckedQueueJob as CheckedQueueJob,
    check_here as check_here,
    check_queue as check_queue,
    pack as pack,
    predict as predict,
    refuse_if_any as refuse_if_any,
    telling as telling,
)
from .packing.policy import (
    POLICIES as POLICIES,
    Admission as Admission,
    OwnPolicy as OwnPolicy,
    PackingDevice as PackingDevice,
    cpu_admission as cpu_admission,
    get_policy as get_policy,
)
from .packing.queue import (
    Attempt as Attempt,
    JobProfile as JobProfile,
    QueuedJob as QueuedJob,
    read_queue as read_queue,
)
from .packing.queue_run import QueueRecord as QueueRecord, run_queue as run_queue
from .packing.recorded_profiles import (
    PROFILES_FILE as PROFILES_FILE,
    RecordedJob as RecordedJob,
    RecordedPair as RecordedPair,
    RecordedProfiles as RecordedProfiles,
    read_recorded as read_recorded,
    shared_slowdown as shared_slowdown,
)
from .packing.scheduler import Schedule as Schedule, side_by_side as side_by_side
from .packing.simulate import (
    CARMA_ENERGY as CARMA_ENERGY,
    CARMA_MAKESPAN as CARMA_MAKESPAN,
    pack_report as pack_report,
    simulate as simulate,
)
from .plan.csv_plan import CsvPlan as CsvPlan, read_csv_plan as read_csv_plan
from .plan.jobs_text import parse_jobs as parse_jobs
from .plan.plan import (
    MODES as MODES,
    Plan as Plan,
    Workload as Workload,
    on_device as on_device,
    with_baseline as with_baseline,
    with_seconds as with_seconds,
)
from .plan.planned_job import PlannedJob as PlannedJob
from .plan.yaml_plan import read_yaml_plan as read_yaml_plan
from .plan_check import PlanCheck as PlanCheck, check_plan as check_plan, job_memory as job_memory
from .running import collocate as collocate, plan_of as plan_of
from .verdicts import Verdict as Verdict, disturbed_rounds as disturbed_rounds, verdict as verdict
