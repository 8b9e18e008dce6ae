#!/usr/bin/env bash
# A stretch near the end of an Ogg Vorbis file begins 384 samples late.
# Guess: seek(n), then read(m) gives samples n to n + m of the whole file, as it does of WAV and FLAC.
# Seen: in the last second of four they are those from n + 384 on (24 ms at 16 kHz), without an error.
# Source: SoundFile.seek, https://python-soundfile.readthedocs.io/en/0.13.1/#soundfile.SoundFile.seek; libsndfile 1.2.2
# labkit: a stretch of an Ogg file is cut from the whole (labkit/data/speech/audio.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check soundfile==0.14.0 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PYTHON'
import numpy as np
import soundfile

rate = 16_000
t = np.arange(4 * rate) / rate
buzz = sum(np.sin(2 * np.pi * 120 * k * t) / k for k in range(1, 20)) * 0.1 * (np.sin(2 * np.pi * 2.5 * t) > 0)
buzz += 0.003 * np.random.default_rng(0).standard_normal(len(t))
late = {}
for name, kind in (("OGG", "VORBIS"), ("FLAC", "PCM_16")):
    soundfile.write(f"a.{name}", buzz, rate, format=name, subtype=kind)
    whole, _ = soundfile.read(f"a.{name}", dtype="float32")
    for start in (3 * rate, 3 * rate + rate // 2):
        with soundfile.SoundFile(f"a.{name}") as file:
            file.seek(start)
            part = file.read(1600, dtype="float32")
        misses = [abs(part - whole[start + by : start + by + 1600]).max() for by in range(0, 1024, 64)]
        late[name, start] = 64 * int(np.argmin(misses))
print(f"soundfile {soundfile.__version__}, {soundfile.__libsndfile_version__}: samples too late, by format and start: {late}")
raise SystemExit(late[("OGG", 56000)] != 384 or any(by for (name, _), by in late.items() if name == "FLAC"))
PYTHON
