from .counters import (
    FAULTS as FAULTS,
    Counter as Counter,
    Latest as Latest,
    Reading as Reading,
    bars as bars,
    recorded as recorded,
    replayed as replayed,
    value_text as value_text,
    vocabulary as vocabulary,
)
from .disturbance import Look as Look, is_quiet as is_quiet, others_now as others_now, own_affinity as own_affinity
from .energy import (
    OF_A_RESULT as OF_A_RESULT,
    OF_ENERGY as OF_ENERGY,
    Energy as Energy,
    Sample as Sample,
    Samples as Samples,
    Step as Step,
    cpu_energy as cpu_energy,
    gpu_energy as gpu_energy,
    gpu_of as gpu_of,
    peak_memory as peak_memory,
    run_energy as run_energy,
    whole as whole,
)
from .power import (
    Idle as Idle,
    PowerLimit as PowerLimit,
    check_power_limits as check_power_limits,
    cool_down as cool_down,
    idle as idle,
    sampled as sampled,
)
from .sampler import (
    DEFAULT_HZ as DEFAULT_HZ,
    MOST_HZ as MOST_HZ,
    SampleClock as SampleClock,
    Sampler as Sampler,
    TelemetryWriter as TelemetryWriter,
)
from .sources.host import (
    HIP as HIP,
    ProcessCounters as ProcessCounters,
    family_cpu_s as family_cpu_s,
    forget_peak_memory as forget_peak_memory,
    own_peak_bytes as own_peak_bytes,
)
from .sources.ladder import Ladder as Ladder, open_ladder as open_ladder
