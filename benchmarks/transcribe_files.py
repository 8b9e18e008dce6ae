"""How fast the shipped corpus is transcribed: `python benchmarks/transcribe_files.py --run RUN`.

The command `labkit transcribe` takes turns with a plain loop: for each stretch its file is opened, sought and closed,
and one recording is heard at a time by the plain kernels, with torch's own number of threads. With `--base PYTHON` it
takes turns with the same command of another build instead. A turn is a process, timed from its start to its end;
processor time stands next to it.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from measuring import report, speed_ups

CORPUS = Path(__file__).parent.parent / "datasets" / "speech"


def plain_loop(corpus: Path, run: Path) -> None:
    from labkit.data import speech
    from labkit.jobs.speech import build_model
    from labkit.models import SpeechConfig
    from labkit.runs import read_run
    from labkit.transcription import Recogniser, find_recordings, read_recogniser

    fast, record = read_recogniser(run).model, read_run(run)
    model = build_model(SpeechConfig(**record.config["model"]), "plain")
    own = model.state_dict()
    model.load_state_dict({name: value.reshape(own[name].shape) for name, value in fast.state_dict().items()})
    recogniser = Recogniser(model, record)
    for recording in find_recordings([corpus]):
        wave, _ = speech.decode(recording.utterance)
        print(recogniser.hear([wave])[0].text)


def timed(command: list[str]) -> dict[str, float]:
    """Seconds of a process on the clock and of processor time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall": wall, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="a finished speech run")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--base", help="the Python of another build of labkit")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plain:
        plain_loop(args.corpus, args.run)
        return
    given = ["--run", str(args.run)]
    command = ["-m", "labkit", "transcribe", str(args.corpus), *given, "--json"]
    plain = [sys.executable, __file__, "--plain", "--corpus", str(args.corpus), *given]
    base = {"labkit before": [args.base, *command]} if args.base else {"plain loop": plain}
    ways = base | {"labkit": [sys.executable, *command]}
    taken = {clock: {way: [] for way in ways} for clock in ("wall", "cpu")}
    load = []
    for turn in range(-1, args.turns):  # the first one fills the cache of files
        load.append(os.getloadavg()[0])
        for way, way_command in ways.items():
            seconds = timed(way_command)
            if turn >= 0:
                for clock, values in taken.items():
                    values[way].append(seconds[clock])
                print(json.dumps({"turn": turn, "way": way, **seconds}), file=sys.stderr, flush=True)
    ratios = [
        ratio
        for clock, values in taken.items()
        for ratio in speed_ups(f"transcribe {args.corpus.name}, {clock}", values, base=next(iter(ways)), unit="s")
    ]
    name = "transcribe_files_before" if args.base else "transcribe_files"
    report(name, ratios, turns=taken, load=load, median_load=median(load))


if __name__ == "__main__":
    main()
