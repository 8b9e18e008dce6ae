from . import sharding as sharding
from .busy import loads as loads, sweep as sweep, watch as watch
from .cache_hit_rates import (
    expected_hit_rate as expected_hit_rate,
    simulate_hit_rate as simulate_hit_rate,
    zipf_shares as zipf_shares,
)
from .char_transformer import (
    VOCABULARY as VOCABULARY,
    Block as Block,
    CharTransformer as CharTransformer,
    char_batch as char_batch,
    char_text as char_text,
    grown_by as grown_by,
)
from .fault_run import documented_behaviour as documented_behaviour, run_fault as run_fault
from .faulty_client import FAULTS as FAULTS
from .figures import (
    budget_shares as budget_shares,
    figure_budget_shares as figure_budget_shares,
    figure_busy as figure_busy,
    figure_cache_curve as figure_cache_curve,
    figure_gain_over_scale as figure_gain_over_scale,
    figure_gains as figure_gains,
    figure_kernel_shapes as figure_kernel_shapes,
    figure_knee as figure_knee,
    figure_observer_effect as figure_observer_effect,
    figure_shares as figure_shares,
    figure_walks as figure_walks,
)
from .index_costs import count_inserts as count_inserts, time_packages as time_packages, time_reads as time_reads
from .limits import Curve as Curve, Limits as Limits, measure_limits as measure_limits
from .made_up_runs import make_runs as make_runs, neighbour as neighbour, planted as planted
from .memory import (
    counted_bytes as counted_bytes,
    largest_batch as largest_batch,
    memory_held as memory_held,
    tried_sizes as tried_sizes,
)
from .observer_effect import (
    observe as observe,
    observers as observers,
    whole_run as whole_run,
)
from .own_job import OwnPolicy as OwnPolicy, small_dlrm as small_dlrm, train_clicks as train_clicks
from .recorded_step import (
    RecordedStep as RecordedStep,
    read_step as read_step,
    with_overheads as with_overheads,
)
from .recorder import Recorder as Recorder
from .several import (
    RecordedSet as RecordedSet,
    on_threads as on_threads,
    planned_tables as planned_tables,
    recorded_collectives as recorded_collectives,
    recorded_plans as recorded_plans,
    train_on as train_on,
)
from .sharing_figures import (
    figure_fault_timeline as figure_fault_timeline,
    figure_gain_against_slowdown as figure_gain_against_slowdown,
    figure_queue as figure_queue,
)
from .slow_trainer import (
    SlowTrainer as SlowTrainer,
    batch_in_python as batch_in_python,
    look_up_one_by_one as look_up_one_by_one,
)
from .stand_ins import FakeClock as FakeClock, WatchedRun as WatchedRun
from .two_clocks import (
    KINDS as KINDS,
    Walked as Walked,
    begin_together as begin_together,
    transfers_us as transfers_us,
    walk as walk,
    walk_timeline as walk_timeline,
    walk_together as walk_together,
)
