"""A job's process without torch: it speaks the protocol, and does what its arguments say, in order.

Before it is ready: `deaf` to SIGTERM, `breeds` and `sibling` (processes that stay), `shares` memory, `fails`, and
`await=FILE`. When it may go: `dies`, `touch=FILE`, `wait=FILE`, `always-greedy`, `stays` until it is asked to end;
`greedy=FILE` and `killed=FILE` run out of memory and die by SIGKILL where FILE, which they make, is not there yet.
"""

import os
import queue
import signal
import subprocess
import sys
import time
import zlib
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

from labkit.process import Parent
from labkit.process.containment import JOB

STAYS = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def main() -> None:
    parent, orders = Parent(), queue.SimpleQueue()
    parent.listen(orders.put, lambda: orders.put(None))
    name, say, words, shared = os.environ[JOB], parent.tell, parent.content["arguments"], None

    def fail(status: str = "failed") -> None:
        say("Failed", status=status, reason="as asked", answer=None)
        sys.exit(2)

    if "deaf" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "breeds" in words:  # a child that has left group and session, and whose parent is gone
        program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STAYS!r}], start_new_session=True)"
        subprocess.run([sys.executable, "-c", program], check=True)
    if "sibling" in words:
        subprocess.Popen([sys.executable, "-c", STAYS])
    if "shares" in words:
        resource_tracker.ensure_running()  # while it is being started, the memory would be nobody's: Python's own race
        # which the resource tracker removes, if it is let; named for the folder of a test
        mark = zlib.crc32(os.environ.get("TMPDIR", "").encode())
        shared = SharedMemory(f"labkit-{mark:08x}-{os.getpid()}", create=True, size=4096)
    say("Started", run=f"run-of-{name}", folder=name)
    if "fails" in words:
        fail()
    acts = [word.partition("=")[::2] for word in words]
    for verb, file in acts:
        if verb == "await":
            wait_for_file(file)
    say("Ready")
    status = "stopped" if parent.content["waits"] and orders.get() is None else "done"
    for verb, file in acts if status == "done" else ():
        again = Path(file).exists()
        if verb in ("touch", "greedy", "killed"):
            Path(file).touch()
        if verb == "wait":
            wait_for_file(file)
        elif verb == "always-greedy" or (verb == "greedy" and not again):
            fail("out_of_memory")
        elif verb == "dies" or (verb == "killed" and not again):
            os.kill(os.getpid(), signal.SIGKILL)
        elif verb == "stays" and orders.get() is None:  # the end of input asks to stop
            status = "stopped"
            while "deaf" in words:
                time.sleep(1)
    if shared is not None:
        shared.close()
        shared.unlink()
    say("Ended", run=f"run-of-{name}", folder=name, status=status, result={"wall_s": 1.0})


def wait_for_file(file: str) -> None:
    while not Path(file).exists():
        time.sleep(0.01)


if __name__ == "__main__":
    main()
