from .data import GENERATORS as GENERATORS, ensure as ensure
from .kinds import PIPELINES as PIPELINES, STAGES as STAGES, PipelineJob as PipelineJob, TripsJob as TripsJob
from .limits import (
    EDGE as EDGE,
    MemoryFit as MemoryFit,
    fit_memory as fit_memory,
    fit_runs as fit_runs,
    limits_table as limits_table,
    memory_of as memory_of,
)
from .load import Load as Load, open_loop as open_loop, poisson_times as poisson_times, serve_at as serve_at
from .made import bytes_of as bytes_of, held_out as held_out
from .merit import (
    NOT_COMPARABLE as NOT_COMPARABLE,
    merit_table as merit_table,
    pipelines_per_minute as pipelines_per_minute,
)
from .serving import MicroBatches as MicroBatches, OneByOne as OneByOne, serving as serving
from .stages import (
    PipelineRun as PipelineRun,
    pipeline_runs as pipeline_runs,
    read_pipeline as read_pipeline,
    shipped as shipped,
    stage_table as stage_table,
)
from .trips import make_model as make_model
from .ways import (
    TOLERANCE as TOLERANCE,
    WAYS as WAYS,
    compiled_pass as compiled_pass,
    in_processes as in_processes,
    in_threads as in_threads,
    largest_difference as largest_difference,
    make_features as make_features,
    one_pass as one_pass,
    parts_of as parts_of,
    time_ways as time_ways,
)
