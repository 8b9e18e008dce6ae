from .comparisons import error_bars as error_bars, figure_roofline as figure_roofline, figure_sweep as figure_sweep
from .costs import figure_batch_size as figure_batch_size, figure_costs as figure_costs, figure_pareto as figure_pareto
from .descriptions import (
    IN_THE_DARK as IN_THE_DARK,
    MIME as MIME,
    OFFLINE as OFFLINE,
    describe as describe,
    description_text as description_text,
    import_nbformat as import_nbformat,
    page_of as page_of,
    show as show,
    thinned as thinned,
)
from .number_texts import (
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
from .theme import (
    AXIS as AXIS,
    PALETTES as PALETTES,
    encoding as encoding,
    in_the_dark as in_the_dark,
    log_ticks as log_ticks,
    named as named,
    new_figure as new_figure,
    series as series,
)
from .time_to_target import (
    figure_time_against_target as figure_time_against_target,
    figure_time_to_accuracy as figure_time_to_accuracy,
    finding as finding,
    nearest as nearest,
    with_gaps as with_gaps,
)
from .timelines import (
    ONE_HUE as ONE_HUE,
    add_lane_bars as add_lane_bars,
    figure_alignment as figure_alignment,
    figure_icicle as figure_icicle,
    figure_memory_held as figure_memory_held,
    figure_phases as figure_phases,
    figure_timeline as figure_timeline,
)
