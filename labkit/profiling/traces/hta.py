"""What Holistic Trace Analysis (HTA, of Meta) finds in traces of GPUs that labkit does not work out itself.

HTA is no requirement of labkit, and its critical path of version 0.5 fails with pandas 3:
`pip install HolisticTraceAnalysis "pandas<3"`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import UserError
from labkit.profiling.traces.trace import STEP, read_trace

if TYPE_CHECKING:
    import pandas as pd


def queue_lengths(paths: Sequence[Path | str]) -> pd.DataFrame:
    """How many kernels and copies wait on each stream: near zero throughout, the host does not keep the device busy.

    Args:
        paths: trace files of torch.profiler, one a process, in the order of their ranks.

    Returns:
        Columns rank, stream, and of the queue's length at its changes count, mean, std, min, 25%, 50%, 75%, max.

    Raises:
        UserError: HTA is missing, or no kernel ran on a device.
        TraceError: a file is no trace, or a damaged one.
    """
    return _analysis(paths).get_queue_length_summary(ranks=list(range(len(paths))))["queue_length"].reset_index()


def critical_path(path: Path | str, step: int) -> pd.DataFrame:
    """The longest chain of work, each waiting for the one before, from the start of a step to its end.

    Args:
        path: a trace file of torch.profiler. With `enable_cuda_sync_events` of its experimental configuration, it says
            what waited for what; without, HTA guesses.
        step: the number of the step, as in `Trace.phases`; the first one of a trace may lack events.

    Returns:
        A row for each stretch of the chain, in no order: name (of the operator, call or kernel; empty where HTA names
        none), duration_us, type (of HTA's edges, such as "critical_path_operator"), bound_by ("cpu_bound",
        "gpu_compute_bound", "gpu_communication_bound", "gpu_kernel_kernel_overhead", "gpu_kernel_launch_overhead";
        empty for waits of no length).

    Raises:
        UserError: HTA is missing, no kernel ran on a device, the trace has no such step, or HTA finds no path.
        TraceError: the file is no trace, or a damaged one.
    """
    analysis = _analysis([path])
    symbols, events = analysis.t.symbol_table.get_sym_table(), analysis.t.get_trace(0)
    named = ((symbols[name], symbols[kind]) for name, kind in zip(events["name"], events["cat"], strict=True))
    steps = [each for each in named if each[0].startswith(STEP)]  # HTA counts those on the device, too
    wanted = (f"{STEP}{step}", "user_annotation")
    if wanted not in steps:
        numbers = sorted({int(name.removeprefix(STEP)) for name, kind in steps if kind == wanted[1]})
        raise UserError(
            f"{path}: step {step} is not in this trace. It has {', '.join(map(str, numbers)) or 'no steps'}."
        )
    graph, is_found = analysis.critical_path_analysis(rank=0, annotation=STEP, instance_id=steps.index(wanted))
    found = graph.get_critical_path_breakdown() if is_found else None
    if found is None:
        raise UserError(
            f"{path}: HTA finds no critical path through step {step}. Try a step in the middle of the trace."
        )
    columns = {"s_name": "name", "duration": "duration_us", "type": "type", "bound_by": "bound_by"}
    return found[list(columns)].rename(columns=columns).fillna({"name": ""})


def _analysis(paths: Sequence[Path | str]) -> Any:
    """HTA's analysis of the traces of a run's processes, all of their steps."""
    try:
        from hta.trace_analysis import TraceAnalysis
    except ImportError as error:
        raise UserError(
            'This needs Holistic Trace Analysis, which is not installed: pip install HolisticTraceAnalysis "pandas<3"'
        ) from error
    for path in paths:
        if read_trace(path).kernels.empty:  # on which HTA fails without saying why
            raise UserError(
                f"{path}: no kernel ran on a device in this trace, and this analysis is of GPUs. Of a CPU, "
                "labkit.profiling.traces.trace tells operators, phases and memory."
            )
    files = {rank: str(Path(path).resolve()) for rank, path in enumerate(paths)}
    return TraceAnalysis(trace_files=files, trace_dir="/", include_last_profiler_step=True)
