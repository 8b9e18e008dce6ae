"""How many errors a recogniser makes on a voice that it has not heard: `python benchmarks/held_out_voices.py FSDD`.

Each speaker of the Free Spoken Digit Dataset (the folder `recordings`) is held out once, and the recogniser is trained
on the others: `labkit train speech`, then `labkit transcribe` without a language model and with one.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
from measuring import write_result

from labkit.data.speech import FIRST_INDEX, RECORDING

TESTED = FIRST_INDEX["validation"] - FIRST_INDEX["test"]
"""Recordings of each digit and speaker that make up the test split"""


def speakers_of(recordings: Path) -> list[str]:
    return sorted({name[2] for path in recordings.iterdir() if (name := RECORDING.fullmatch(path.name))})


def hold_out(recordings: Path, held_out: str, folder: Path) -> Path:
    """The same layout, whose test split is one speaker and nobody else: all recordings, as if of ten people."""
    folder.mkdir()
    for path in recordings.iterdir():
        if name := RECORDING.fullmatch(path.name):
            digit, speaker, index = name[1], name[2], int(name[3])
            if speaker == held_out:
                speaker, index = f"{speaker}{index // TESTED}", index % TESTED
            elif index < TESTED:  # no test split of the others: train on it
                index += 1000
            (folder / f"{digit}_{speaker}_{index}.wav").symlink_to(path.resolve())
    return folder


def labkit(*arguments: str) -> dict:
    command = [sys.executable, "-m", "labkit", *arguments, "--json"]
    told = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return json.loads(told.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--presets", nargs="+", default=["tour", "digits-large"])
    parser.add_argument("--max-epochs", default="12")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--beam", default="16")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for held_out in speakers_of(args.recordings):
            data = hold_out(args.recordings, held_out, Path(folder) / held_out)
            for preset in args.presets:
                for seed in range(args.seeds):
                    runs = ["--runs-dir", f"{folder}/runs"]
                    flags = ["--data", str(data), "--preset", preset, "--max-epochs", args.max_epochs]
                    told = labkit("train", "speech", *flags, *runs, "--target", "none", "--seed", str(seed))
                    for decoder, more in {"likeliest path": [], f"beam {args.beam}": ["--beam", args.beam]}.items():
                        heard = labkit(
                            "transcribe", str(data), "--split", "test", "--run", told["folder"], *more, *runs
                        )
                        rates = next(row for row in heard["errors"] if row["of"] == "total")
                        rows.append(
                            {"held out": held_out, "preset": preset, "seed": seed, "decoder": decoder,
                             "cer": rates["cer"], "wer": rates["wer"]}
                        )  # fmt: skip
                        print(rows[-1], flush=True)
    table = pd.DataFrame(rows).groupby(["preset", "decoder"])[["cer", "wer"]].agg(["mean", "min", "max"])
    print((100 * table).to_string(float_format="{:.1f}".format))
    write_result("held_out_voices", epochs=args.max_epochs, rows=rows)


if __name__ == "__main__":
    main()
