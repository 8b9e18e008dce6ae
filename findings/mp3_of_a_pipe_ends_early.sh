#!/usr/bin/env bash
# An MP3 file of variable bit rate that was written into a pipe is read for a sixth of its length.
# Guess: read() gives everything, and the number of frames is right or off by a few percent.
# Seen: of 20 seconds that begin loud, 3 are read, without an error. mpg123 takes all MPEG frames to be as large as the
# first, and libsndfile ends at this estimate; from a pipe it reads all: mpeg_dec_fill_sfinfo in
# https://github.com/libsndfile/libsndfile/blob/1.2.2/src/mpeg_decode.c
# labkit: counts the frames, and refuses such a file with the command that converts it (labkit/data/speech/audio.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check soundfile==0.14.0 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PYTHON'
import os
import threading
from pathlib import Path

import numpy as np
import soundfile

rate, samples = 16_000, 320_000
t = np.arange(samples) / rate
wave = np.where(t < 2, 0.3 * np.random.default_rng(0).standard_normal(samples), 0.01 * np.sin(2 * np.pi * 300 * t))


def feed(outlet: int, content: bytes) -> None:
    with os.fdopen(outlet, "wb") as file:
        file.write(content)


read = {}
for mode in ("VARIABLE", "CONSTANT"):
    inlet, outlet = os.pipe()
    piped = []
    reader = threading.Thread(target=lambda: piped.append(os.fdopen(inlet, "rb").read()))
    reader.start()
    with soundfile.SoundFile(
        outlet, "w", rate, 1, "MPEG_LAYER_III", format="MP3", bitrate_mode=mode, compression_level=0.5
    ) as file:
        file.write(wave)
    reader.join()
    Path("a.mp3").write_bytes(piped[0])
    read[mode, "a file"] = len(soundfile.read("a.mp3")[0])
    inlet, outlet = os.pipe()
    feeder = threading.Thread(target=feed, args=(outlet, piped[0]))
    feeder.start()
    with soundfile.SoundFile(inlet) as file:
        read[mode, "a pipe"] = sum(iter(lambda: len(file.read(1600)), 0))
    feeder.join()
print(f"soundfile {soundfile.__version__}, {soundfile.__libsndfile_version__}: samples read, of {samples:,}: {read}")
is_short = {how: count < samples / 4 for how, count in read.items()}
raise SystemExit([how for how, short in is_short.items() if short] != [("VARIABLE", "a file")])
PYTHON
