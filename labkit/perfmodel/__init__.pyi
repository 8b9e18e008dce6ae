from .card import (
    ALL as ALL,
    Card as Card,
    features_of as features_of,
    geometric_error as geometric_error,
    read_card as read_card,
)
from .measure import (
    WHOLE as WHOLE,
    TimedStep as TimedStep,
    fit_card as fit_card,
    measure_card as measure_card,
    no_collection as no_collection,
    time_step as time_step,
    time_workload as time_workload,
    timed_steps as timed_steps,
)
from .operators import interaction_cost as interaction_cost, operators_of as operators_of, timing_s as timing_s
from .predict import (
    NO_CHANGE as NO_CHANGE,
    Prediction as Prediction,
    ToTarget as ToTarget,
    card_notes as card_notes,
    need_of as need_of,
    predict_step as predict_step,
    predict_steps as predict_steps,
    tier_change as tier_change,
    tier_notes as tier_notes,
    to_target as to_target,
    uncertainties as uncertainties,
)
from .table_plan import (
    PUBLISHED_ROWS as PUBLISHED_ROWS,
    TURNS as TURNS,
    TableShape as TableShape,
    plan_tables as plan_tables,
    presets_and_tiers as presets_and_tiers,
    table_bytes as table_bytes,
    tiers_that_hold as tiers_that_hold,
)
from .whatif import ROUNDS as ROUNDS, captured_steps as captured_steps, read_change as read_change, what_if as what_if
from .workloads import draw_workload as draw_workload
