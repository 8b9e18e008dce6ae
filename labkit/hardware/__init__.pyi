from .budgets import (
    OF_A_CPU as OF_A_CPU,
    OF_A_GPU as OF_A_GPU,
    THREAD_VARIABLES as THREAD_VARIABLES,
    Budget as Budget,
    offered_budgets as offered_budgets,
    parse_budget as parse_budget,
    possible_budgets as possible_budgets,
    set_threads as set_threads,
)
from .calibration import (
    CACHE_SIZES_BYTES as CACHE_SIZES_BYTES,
    BudgetCheck as BudgetCheck,
    Calibration as Calibration,
    cache_curve as cache_curve,
    calibrate as calibrate,
    check_budgets as check_budgets,
    copy_gb_per_s as copy_gb_per_s,
    launch_us as launch_us,
    matmul_gflops as matmul_gflops,
    one_thread as one_thread,
)
from .cpu import (
    VARIABLES as VARIABLES,
    core_order as core_order,
    give_memory_back as give_memory_back,
    keep_memory as keep_memory,
    parse_size as parse_size,
    physical_core as physical_core,
    read_cpu as read_cpu,
    size_text as size_text,
)
from .devices import (
    JETSON as JETSON,
    JETSON_LOADS as JETSON_LOADS,
    MPS_SERVER as MPS_SERVER,
    Device as Device,
    Nvml as Nvml,
    cpu_device as cpu_device,
    find_device as find_device,
    get_devices as get_devices,
    is_jetson as is_jetson,
    occupants as occupants,
)
from .doctor import (
    ANSWER_TIMEOUT_S as ANSWER_TIMEOUT_S,
    PROFILERS as PROFILERS,
    examine as examine,
    find_profiler as find_profiler,
    find_profilers as find_profilers,
    installed_version as installed_version,
    package_versions as package_versions,
    which as which,
    why_no_torchrec as why_no_torchrec,
)
from .leases import holder_of as holder_of, leased_cores as leased_cores, own_cores as own_cores, take as take
from .memory_watch import (
    hard_limit as hard_limit,
    held as held,
    is_out_of_memory as is_out_of_memory,
    leave_out as leave_out,
    memory_error as memory_error,
    now_in as now_in,
)
from .mps import find_mps as find_mps, start_mps as start_mps
from .tiers import (
    FIGURES as FIGURES,
    SERVER_FIGURES as SERVER_FIGURES,
    Figure as Figure,
    Tier as Tier,
    cpu_tier as cpu_tier,
    get_grid as get_grid,
    get_tier as get_tier,
    load_tiers as load_tiers,
    match_tier as match_tier,
)
