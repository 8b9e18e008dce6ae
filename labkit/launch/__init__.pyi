from .engine import End as End, Engine as Engine, OnEvent as OnEvent, Start as Start, resume as resume
from .launches import Launch as Launch, Launches as Launches, Part as Part
from .sweep import (
    Cell as Cell,
    Progress as Progress,
    opened as opened,
    read_progress as read_progress,
    run_sweep as run_sweep,
)
from .sweep_file import cells_too_large as cells_too_large, read_sweep_file as read_sweep_file
from .sweep_frame import (
    OF_A_CELL as OF_A_CELL,
    OF_ITS_RUN as OF_ITS_RUN,
    OF_ITS_TARGET as OF_ITS_TARGET,
    read_sweep as read_sweep,
)
from .tour import plan_tour as plan_tour, run_seeds as run_seeds, run_tour as run_tour
