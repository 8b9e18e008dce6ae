from .cells import Cell as Cell
from .engine import End as End, Engine as Engine, OnEvent as OnEvent, Start as Start, resume as resume
from .launches import Launch as Launch, Launches as Launches, Part as Part
from .mix import (
    CPU_MODES as CPU_MODES,
    MODES as MODES,
    Mix as Mix,
    PlannedJob as PlannedJob,
    Workload as Workload,
    mix_launches as mix_launches,
    mix_words as mix_words,
    on_device as on_device,
    shared_with as shared_with,
    with_baseline as with_baseline,
    with_seconds as with_seconds,
)
from .mix_file import (
    parse_jobs as parse_jobs,
    read_csv_mix as read_csv_mix,
    read_jobs as read_jobs,
    read_yaml_mix as read_yaml_mix,
)
from .ranks import (
    RankedRun as RankedRun,
    rank_commands as rank_commands,
    several_machines as several_machines,
)
from .rows import Mistakes as Mistakes, Row as Row, read_settings as read_settings, read_yaml as read_yaml
from .slurm import TASK as TASK, queued as queued, submit as submit, take_cores as take_cores
from .sweep import (
    Progress as Progress,
    opened as opened,
    opened_cell as opened_cell,
    read_progress as read_progress,
    run_sweep as run_sweep,
)
from .sweep_file import (
    cells_too_large as cells_too_large,
    find_sweep_file as find_sweep_file,
    read_sweep_file as read_sweep_file,
)
from .sweep_table import (
    OF_A_CELL as OF_A_CELL,
    OF_ITS_RUN as OF_ITS_RUN,
    OF_ITS_TARGET as OF_ITS_TARGET,
    read_sweep as read_sweep,
)
from .tour import ScriptRuns as ScriptRuns, plan_tour as plan_tour, run_tour as run_tour, watch as watch
