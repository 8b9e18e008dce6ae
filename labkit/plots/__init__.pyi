from .alignment import figure_alignment as figure_alignment
from .bars import (
    figure_budget_shares as figure_budget_shares,
    figure_busy as figure_busy,
    figure_gains as figure_gains,
    figure_predicted_gains as figure_predicted_gains,
)
from .batch_size import figure_batch_size as figure_batch_size
from .costs import figure_costs as figure_costs, figure_pareto as figure_pareto
from .descriptions import describe as describe, in_words as in_words, thinned as thinned
from .gantt import (
    figure_icicle as figure_icicle,
    figure_phases as figure_phases,
    figure_queue as figure_queue,
    figure_timeline as figure_timeline,
)
from .heat_maps import figure_kernel_shapes as figure_kernel_shapes
from .hit_rates import figure_hit_rates as figure_hit_rates
from .over_time import (
    figure_live_run as figure_live_run,
    figure_memory_held as figure_memory_held,
    latest_values as latest_values,
)
from .roofline import figure_cache_curve as figure_cache_curve, figure_roofline as figure_roofline
from .showing import IN_THE_DARK as IN_THE_DARK, MIME as MIME, OFFLINE as OFFLINE, page_of as page_of, show as show
from .slowdowns import (
    figure_fault_timeline as figure_fault_timeline,
    figure_gain_against_slowdown as figure_gain_against_slowdown,
    figure_observer_effect as figure_observer_effect,
)
from .sweep import figure_sweep as figure_sweep
from .theme import (
    PALETTES as PALETTES,
    encoding as encoding,
    in_the_dark as in_the_dark,
    log_ticks as log_ticks,
    new_figure as new_figure,
    series as series,
)
from .time_against_target import figure_time_against_target as figure_time_against_target
from .time_to_accuracy import (
    figure_time_to_accuracy as figure_time_to_accuracy,
    finding as finding,
    nearest as nearest,
    with_gaps as with_gaps,
)
from .words import (
    AXIS_TITLES as AXIS_TITLES,
    axis_text as axis_text,
    budget_words as budget_words,
    count_text as count_text,
    counted as counted,
    is_not_known as is_not_known,
    joules_text as joules_text,
    metric_label as metric_label,
    number_text as number_text,
    rate_text as rate_text,
    seconds_text as seconds_text,
)
