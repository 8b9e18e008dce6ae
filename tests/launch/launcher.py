"""Light jobs in a round; run as a program, a launcher to be killed."""

import sys
from pathlib import Path

from labkit.launch import Engine, Launch, Launches, Start, engine
from labkit.tracking import ScriptCommand, StopRequest

HOW = ["shares stays", "shares stays deaf", "shares stays breeds", "shares stays deaf breeds sibling"]


def run_round(folder: Path, launches: list[Launch], *, grace_s=0.2, mps=False, stop=None, on_event=None) -> Launches:
    """What became of launches."""

    class Light(Engine):
        def begin(self, parts):
            clients = self.executor().start_mps(["GPU-1"]) if mps else {}
            return [Start(part.launch.job, clients) for part in parts]

    made = Launches.new(folder, "light", "round", launches)
    light = Light(made, stop=StopRequest() if stop is None else stop, on_event=on_event or (lambda part, event: None))
    light.grace_s = grace_s
    light.run()
    return made


def together(*hows: str, limit_s: float = 60.0) -> list[Launch]:
    """A light job for each way to behave, at one barrier."""
    return [
        Launch(f"job-{number}", ScriptCommand("light", tuple(how.split())), together="w", limit_s=limit_s)
        for number, how in enumerate(hows)
    ]


if __name__ == "__main__":
    engine.WORKER = "light_job"
    with StopRequest() as asked:
        run_round(Path(sys.argv[1]), together(*HOW), mps="mps" in sys.argv[2:], stop=asked)
