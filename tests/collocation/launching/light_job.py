"""A job's process without torch: it speaks the protocol, and then misbehaves as its arguments say."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
import zlib
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

from labkit.process.child import Parent

CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def main() -> None:
    parent, orders = Parent(), queue.SimpleQueue()
    parent.listen(orders.put, lambda: orders.put(None))
    name, how, say = parent.content["name"], parent.content["how"], parent.tell
    if "deaf" in how:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "breeds" in how:  # a child that has left group and session, and whose parent is gone
        program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {CHILD!r}], start_new_session=True)"
        subprocess.run([sys.executable, "-c", program], check=True)
    if "sibling" in how:
        subprocess.Popen([sys.executable, "-c", CHILD])
    resource_tracker.ensure_running()  # while it is being started, the memory would be nobody's: Python's own race
    # which the resource tracker removes, if it is let; named for the folder of a test
    mark = zlib.crc32(os.environ.get("TMPDIR", "").encode())
    shared = SharedMemory(f"labkit-{mark:08x}-{os.getpid()}", create=True, size=4096)
    say("Started", run=name, folder=name)
    if "fails" in how:
        say("Failed", status="failed", reason="as asked", answer=None)
        sys.exit(2)
    say("Ready")
    if orders.get() == {"kind": "go"}:
        if "dies" in how:
            os.kill(os.getpid(), signal.SIGKILL)
        if "stays" in how and orders.get() is None:  # the end of input asks to stop
            while "deaf" in how:
                time.sleep(1)
    shared.close()
    shared.unlink()
    say("Ended", run=name, folder=name, status="stopped" if "stays" in how else "done", result={"wall_s": 1.0})


if __name__ == "__main__":
    main()
