from .child import (
    GRACE_S as GRACE_S,
    OUT_OF_CTRL_C as OUT_OF_CTRL_C,
    Child as Child,
    Parent as Parent,
    silenced as silenced,
)
from .containment import (
    adopt_orphans as adopt_orphans,
    descendants as descendants,
    end_killed as end_killed,
    kill_session as kill_session,
    kill_until_gone as kill_until_gone,
    marked as marked,
    wait_until_gone as wait_until_gone,
)
from .forking import go_cold as go_cold, is_warm as is_warm, starter_pid as starter_pid
from .supervisor import (
    JOB_GRACE_S as JOB_GRACE_S,
    SupervisedJobs as SupervisedJobs,
    SupervisorDied as SupervisorDied,
    how_ended as how_ended,
)
from .template import (
    current_template as current_template,
    is_possible as is_possible,
    library_variables as library_variables,
    own_template as own_template,
    start_template as start_template,
)
from .warm_server import leave_server as leave_server, run_in_server as run_in_server
