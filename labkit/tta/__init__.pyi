from .batch_size import NEED as NEED, by_batch_size as by_batch_size
from .cost import (
    Cost as Cost,
    cost_usd as cost_usd,
    on_front as on_front,
    price_usd_per_h as price_usd_per_h,
    priced as priced,
    usd_per_s as usd_per_s,
    with_cost as with_cost,
)
from .curve_tables import (
    curves as curves,
    curves_by_metric as curves_by_metric,
    default_target as default_target,
    run_table as run_table,
    table_of as table_of,
)
from .energy import (
    EnergyAccount as EnergyAccount,
    energy_account as energy_account,
    energy_until as energy_until,
    window_energy as window_energy,
    windows_by_name as windows_by_name,
    with_energy as with_energy,
)
from .kaplan_meier import (
    band as band,
    median_time as median_time,
    survival as survival,
    survival_curve as survival_curve,
)
from .restarts import expected_to_target as expected_to_target, success_interval as success_interval
from .sooner import SpeedUp as SpeedUp, speed_up as speed_up
from .summaries import summary as summary, target_columns as target_columns
from .thresholds import (
    CLOCKS as CLOCKS,
    SERIES as SERIES,
    attempts as attempts,
    crossings as crossings,
    higher_is_better as higher_is_better,
)
from .trials import NUMBERS as NUMBERS, trial_means as trial_means, trial_table as trial_table
