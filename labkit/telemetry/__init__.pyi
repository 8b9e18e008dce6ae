from .counters import Counter as Counter, vocabulary as vocabulary
from .energy import (
    Energy as Energy,
    Step as Step,
    cpu_energy as cpu_energy,
    gpu_energy as gpu_energy,
    gpu_of as gpu_of,
    run_energy as run_energy,
)
from .idle_power import Idle as Idle, cool_down as cool_down, idle as idle, sampled as sampled
from .latest import Latest as Latest, value_text as value_text
from .memory import (
    forget_peak_memory as forget_peak_memory,
    own_peak_bytes as own_peak_bytes,
    peak_memory as peak_memory,
)
from .others import Look as Look, is_quiet as is_quiet, others_now as others_now, own_affinity as own_affinity
from .power_limit import PowerLimit as PowerLimit, check_power_limits as check_power_limits
from .reading import FAULTS as FAULTS, Reading as Reading, recorded as recorded, replayed as replayed
from .sampler import DEFAULT_HZ as DEFAULT_HZ, MOST_HZ as MOST_HZ, Sampler as Sampler
from .samples import Sample as Sample, Tail as Tail, read_samples as read_samples, whole as whole
from .sampling import SampleClock as SampleClock, TelemetryWriter as TelemetryWriter
from .sources.host import ProcessCounters as ProcessCounters
from .sources.ladder import Ladder as Ladder, open_ladder as open_ladder
from .sources.zeus import HIP as HIP
