from .costs import (
    NUMBERS as NUMBERS,
    cost_usd as cost_usd,
    energy_account as energy_account,
    energy_of as energy_of,
    energy_until as energy_until,
    price_usd_per_h as price_usd_per_h,
    trial_means as trial_means,
    trial_table as trial_table,
    usd_per_s as usd_per_s,
    window_energy as window_energy,
    windows_by_name as windows_by_name,
    with_cost as with_cost,
    with_energy as with_energy,
)
from .estimators import (
    band as band,
    expected_to_target as expected_to_target,
    median_time as median_time,
    success_interval as success_interval,
    survival as survival,
    survival_curve as survival_curve,
    survival_of as survival_of,
)
from .intervals import mean_interval as mean_interval, runs_needed as runs_needed
from .outcomes import (
    CLOCKS as CLOCKS,
    Attempts as Attempts,
    attempts as attempts,
    crossings as crossings,
    curves as curves,
    default_target as default_target,
    higher_is_better as higher_is_better,
    run_table as run_table,
    table_of as table_of,
)
from .summaries import (
    NEED as NEED,
    by_batch_size as by_batch_size,
    speed_up as speed_up,
    summary as summary,
    summary_of as summary_of,
    target_columns as target_columns,
)
