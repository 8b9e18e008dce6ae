from .frames import (
    CURVE_COLUMNS as CURVE_COLUMNS,
    OF_A_RUN as OF_A_RUN,
    RUN_COLUMNS as RUN_COLUMNS,
    SERIES as SERIES,
    Frames as Frames,
    Series as Series,
    add_setting as add_setting,
)
from .parts import (
    TELEMETRY as TELEMETRY,
    MergingPartWriter as MergingPartWriter,
    current_parts as current_parts,
    part_numbers as part_numbers,
    part_path as part_path,
    read_part as read_part,
    spare_pandas as spare_pandas,
    write_part as write_part,
)
from .private import HIDDEN as HIDDEN, given_again as given_again, restored as restored, shielded as shielded
from .published import (
    CARD as CARD,
    EVALUATIONS as EVALUATIONS,
    RUNS as RUNS,
    chosen as chosen,
    read_card as read_card,
    recorded as recorded,
    recorded_table as recorded_table,
    recordings as recordings,
)
from .query import (
    find_run as find_run,
    list_rows as list_rows,
    list_runs as list_runs,
    read_events as read_events,
    read_metrics as read_metrics,
    read_telemetry as read_telemetry,
    readable_runs as readable_runs,
    run_folders as run_folders,
)
from .record import (
    BUSY as BUSY,
    MOST_OF_A_CORE as MOST_OF_A_CORE,
    SCHEMA_VERSION as SCHEMA_VERSION,
    Kind as Kind,
    Others as Others,
    Provenance as Provenance,
    RunRecord as RunRecord,
    Status as Status,
    disturbance_text as disturbance_text,
    is_alive as is_alive,
    own_process as own_process,
    read_run as read_run,
    timestamp as timestamp,
    worse as worse,
)
from .safe_files import (
    disk_full_as_user_error as disk_full_as_user_error,
    is_disk_full as is_disk_full,
    note_left_out as note_left_out,
    notes_kept as notes_kept,
    replace_text as replace_text,
    temporary_of as temporary_of,
)
from .writer import (
    STOP_POLL_S as STOP_POLL_S,
    RunWriter as RunWriter,
    fail_killed as fail_killed,
    lock_run as lock_run,
    request_stop as request_stop,
)
