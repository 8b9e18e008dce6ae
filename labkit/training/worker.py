"""A training run in a process of its own: a request comes in on standard input, events go out on standard output.

Its launcher keeps standard input open. When that closes, because the launcher ended or was killed, the run stops
politely, so that nothing is left running.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labkit.errors import UserError, refusal
from labkit.runs.parts import spare_pandas
from labkit.training.request import TrainRequest
from labkit.training.session import RunFailed, train
from labkit.training.stop import StopRequest


def main() -> int:
    spare_pandas()
    request = json.loads(sys.stdin.readline())
    stop = StopRequest()
    threading.Thread(target=_stop_at_end_of_input, args=(stop,), daemon=True).start()
    try:
        answer = train(
            TrainRequest.from_dict(request["request"]),
            runs_dir=Path(request["runs_dir"]),
            on_event=lambda event: _send(type(event).__name__, asdict(event)),
            stop=stop,
        )
    except RunFailed as failure:
        _send("Failed", {"text": str(failure), "answer": failure.answer})
        return 2
    except (UserError, OSError) as error:
        refused = error if isinstance(error, UserError) else refusal(error)
        if refused is None:
            raise
        _send("Refused", {"text": str(refused)})
        return 2
    _send("Ended", answer)
    return 0


def _stop_at_end_of_input(stop: StopRequest) -> None:
    sys.stdin.read()
    stop.request("its launcher")


def _send(kind: str, content: dict[str, Any]) -> None:
    # where the launcher is gone, the end of input stops the run
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"kind": kind, **content}), flush=True)


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(status)  # all is written; taking torch apart would take up to a second more
