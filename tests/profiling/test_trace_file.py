"""Reading trace files piece by piece, whole ones and damaged ones."""

import gzip
import json
import tracemalloc

import pytest

from labkit.profiling import trace_file
from labkit.profiling.trace_file import TraceError, stream_events

NAME = 'odd "name" with ] and }, \\'
EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": NAME, "ts": 1.5, "dur": 2, "args": {"Input Dims": [[2, 3], []]}},
    {"ph": "i", "name": "mark", "ts": 3},
    {"ph": "X", "cat": "cpu_op", "name": "größer\n", "ts": 4.25, "dur": 0.001},
]
WHOLE = {"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": EVENTS, "traceName": "t"}
TEXT, LIST = json.dumps(WHOLE), json.dumps(EVENTS)


@pytest.fixture(params=[trace_file.CHUNK, 1, 7], ids="chunk={}".format)
def path(request, monkeypatch, tmp_path):
    monkeypatch.setattr(trace_file, "CHUNK", request.param)
    return tmp_path / "trace.json"


# of a bare list the end may be missing
@pytest.mark.parametrize("text", [TEXT, json.dumps(WHOLE, indent=2), LIST + "\n", LIST[:-1], LIST[:-1] + ",\n"])
@pytest.mark.parametrize("packed", [str.encode, lambda text: gzip.compress(text.encode())], ids=["plain", "gzip"])
def test_events_come_as_they_were_written(path, text, packed):
    path.write_bytes(packed(text))
    assert list(stream_events(path)) == EVENTS


DAMAGED = {
    "empty": (" \n", "this trace is empty"),
    "cut inside an event": (TEXT[: TEXT.index("mark")], "after 1 events: no event can be read here, or the file was"),
    "cut inside a text": (TEXT[: TEXT.index("gr\\u00f6") + 2], "the file was cut off"),
    "cut between events": (TEXT[: TEXT.index('{"ph": "i"')], "after 1 events: the file ends before its list"),
    "broken": (TEXT.replace('"ts": 3', '"ts": 3..3'), "after 1 events: no event can be read here"),
    "not events": ('{"traceEvents": [1, 2]}', "events are objects in braces"),
    "another format": ("SQLite format 3\x00", "not a trace in Chrome's format"),
    "cut off, compressed": (gzip.compress(TEXT.encode())[:-90], "compression is damaged or cut off"),
    "other JSON": ('{"cells": []}', "not a trace in Chrome's format"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_damaged_is_told_with_the_place_and_the_remedy(path, case):
    text, words = DAMAGED[case]
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TraceError) as error:
        list(stream_events(path))
    assert words in str(error.value) and str(path) in str(error.value)


def test_the_size_of_the_file_is_not_the_size_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_file, "CHUNK", 2**14)
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [' + ",\n".join([json.dumps(EVENTS[0])] * 10_000) + "]}")
    tracemalloc.start()
    count = sum(1 for _ in stream_events(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 10_000 and peak < 0.4 * path.stat().st_size
