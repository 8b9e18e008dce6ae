#!/usr/bin/env bash
# A FLAC file that was written into a pipe has 9,223,372,036,854,775,807 samples.
# Guess: soundfile reads to the end of such a file, or says that its length is not known.
# Seen: frames is 2**63 - 1, and read() asks for that much memory. FLAC writes 0 samples, "unknown", into a head that
# it cannot go back to: https://www.rfc-editor.org/rfc/rfc9639#section-8.2
# labkit: such a file is refused with a line for ffmpeg (labkit/data/speech/audio.py).
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

inlet, outlet = os.pipe()
piped = []
reader = threading.Thread(target=lambda: piped.append(os.fdopen(inlet, "rb").read()))
reader.start()
with soundfile.SoundFile(outlet, "w", 16_000, 1, format="FLAC", subtype="PCM_16") as file:
    file.write(np.sin(np.arange(16_000) / 20))
reader.join()
Path("piped.flac").write_bytes(piped[0])
frames, error = soundfile.info("piped.flac").frames, None
try:
    soundfile.read("piped.flac")
except (ValueError, MemoryError) as failure:
    error = str(failure)
print(f"soundfile {soundfile.__version__}, {soundfile.__libsndfile_version__}: {frames} frames of 16000; read(): {error}")
raise SystemExit(frames != 2**63 - 1 or error is None)
PYTHON
