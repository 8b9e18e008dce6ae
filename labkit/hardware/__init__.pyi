from .allocator import VARIABLES as VARIABLES, give_memory_back as give_memory_back, keep_memory as keep_memory
from .budgets.budget import (
    THREAD_VARIABLES as THREAD_VARIABLES,
    Budget as Budget,
    is_out_of_memory as is_out_of_memory,
    memory_error as memory_error,
)
from .budgets.check import budget_shares as budget_shares, check_budgets as check_budgets
from .budgets.memory_watch import hard_limit as hard_limit, held as held
from .budgets.mps import start_mps as start_mps
from .budgets.names import (
    OF_A_CPU as OF_A_CPU,
    OF_A_GPU as OF_A_GPU,
    offered_budgets as offered_budgets,
    parse_budget as parse_budget,
    possible_budgets as possible_budgets,
)
from .calibration import (
    CACHE_SIZES_BYTES as CACHE_SIZES_BYTES,
    Calibration as Calibration,
    cache_curve as cache_curve,
    calibrate as calibrate,
    copy_gb_per_s as copy_gb_per_s,
    launch_us as launch_us,
    matmul_gflops as matmul_gflops,
    one_thread as one_thread,
)
from .cpu import core_order as core_order, parse_size as parse_size, read_cpu as read_cpu, size_text as size_text
from .devices import (
    JETSON as JETSON,
    JETSON_LOADS as JETSON_LOADS,
    Device as Device,
    cpu_device as cpu_device,
    find_device as find_device,
    get_devices as get_devices,
    is_jetson as is_jetson,
)
from .doctor import examine as examine
from .leases import holder_of as holder_of, leased_cores as leased_cores, own_cores as own_cores, take as take
from .nvml import MPS_SERVER as MPS_SERVER, Answer as Answer, Nvml as Nvml, occupants as occupants
from .software import (
    ANSWER_TIMEOUT_S as ANSWER_TIMEOUT_S,
    PROFILERS as PROFILERS,
    find_mps as find_mps,
    find_profiler as find_profiler,
    find_profilers as find_profilers,
    installed_version as installed_version,
    package_versions as package_versions,
    which as which,
)
from .tiers import (
    FIGURES as FIGURES,
    SERVER_FIGURES as SERVER_FIGURES,
    Figure as Figure,
    Tier as Tier,
    cpu_tier as cpu_tier,
    get_grid as get_grid,
    get_tier as get_tier,
    load_grids as load_grids,
    load_tiers as load_tiers,
    match_tier as match_tier,
)
