"""A job's process without torch: it speaks the protocol, and does what its arguments say, in order.

`touch FILE`, `await FILE` (before it goes) and `wait FILE` (after); `greedy FILE` runs out of memory and `killed FILE`
dies by SIGKILL where FILE is not there yet, which they make; `stay` ends when it is asked to, `fail` fails.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
from pathlib import Path

from labkit.process.child import Parent


def main() -> None:
    parent, orders = Parent(), queue.SimpleQueue()
    parent.listen(orders.put, lambda: orders.put(None))
    command, say = parent.content, parent.tell
    name, words = command["collocation"]["job"], command["arguments"]
    say("Started", run=f"run-of-{name}", folder=name)
    while words[:1] == ["await"]:
        wait_for(words[1])
        words = words[2:]
    say("Ready")
    orders.get()
    status = "done"
    for verb, file in zip(words[::2], words[1::2], strict=True):
        again = Path(file).exists()
        if verb in ("touch", "greedy", "killed"):
            Path(file).touch()
        if verb == "wait":
            wait_for(file)
        elif verb == "always-greedy" or (verb == "greedy" and not again):
            say("Failed", status="out_of_memory", reason="it wanted more", answer=None)
            sys.exit(2)
        elif verb == "killed" and not again:
            os.kill(os.getpid(), signal.SIGKILL)
        elif verb == "fail":
            say("Failed", status="failed", reason="as asked", answer=None)
            sys.exit(2)
        elif verb == "stay" and orders.get() is None:
            status = "stopped"
    say("Ended", run=f"run-of-{name}", folder=name, status=status, result={"wall_s": 1.0})


def wait_for(file: str) -> None:
    while not Path(file).exists():
        time.sleep(0.01)


if __name__ == "__main__":
    main()
