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
from .supervisor import (
    JOB_GRACE_S as JOB_GRACE_S,
    JobProcess as JobProcess,
    SupervisedJobs as SupervisedJobs,
    SupervisorDied as SupervisorDied,
    how_ended as how_ended,
)
