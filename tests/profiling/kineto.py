"""Traces made by hand, in Kineto's format, and recorded ones."""

import json

from labkit.profiling.trace import read_trace


def trace_of(folder, events):
    (folder / "t.json").write_text(json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": events}))
    return read_trace(folder / "t.json")


def recorded(folder, step, **options):
    """What torch's profiler records of a call, and the profiler."""
    from torch.profiler import profile

    with profile(record_shapes=True, **options) as profiler:
        step()
    profiler.export_chrome_trace(str(folder / "t.json"))
    return read_trace(folder / "t.json"), profiler


def operators(trace):
    """Calls and microseconds of a trace's operators, by name."""
    own = trace.events[trace.events["category"] == "cpu_op"]
    sums = {"calls": ("name", "size"), "total_us": ("duration_us", "sum"), "self_us": ("self_us", "sum")}
    return own.groupby(own["name"].astype(str)).agg(**sums)


def event(name, start, duration, cat="cpu_op", tid=1, pid=9, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": duration, "args": args}


def note(name, start, duration, tid=1):
    return event(name, start, duration, "user_annotation", tid)


def shaped(name, start, duration, shapes, kind="float", **more):
    """An operator with the sizes of its inputs, all of one type."""
    sizes = {"Input Dims": shapes, "Input type": [kind] * len(shapes), "Concrete Inputs": [""] * len(shapes)}
    return event(name, start, duration, **sizes, **more)


def steps(count, length, content):
    """So many steps in a row, each with what `content(begin)` has in it."""
    events = []
    for number in range(count):
        begin = number * length
        events += [note(f"ProfilerStep#{number}", begin, length), *content(begin)]
    return events
