"""Make the speech corpus of this folder with espeak-ng: `python datasets/speech/make.py [FOLDER]`.

Needed only to change the corpus. Everything is drawn from seeds, so the same espeak-ng, libsndfile and NumPy
give the same audio; only the serial number that libsndfile writes into each Ogg file differs. A voice is one
Opus file, its utterances back to back with pauses between them; `manifest.jsonl` says where each one lies.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from scipy.signal import resample_poly

SEED = 20261121
SAMPLE_RATE_HZ = 16_000
GRID = 160
"""Utterances start and end on multiples of 10 ms, so that offsets are short decimal numbers."""

MARGIN_S = (0.06, 0.16)
"""Quiet kept before and after the words, inside the utterance."""
PAUSE_S = (0.15, 0.30)
"""Quiet between utterances, outside them."""
COMPRESSION_LEVEL = 0.945
"""libsndfile's measure of an Opus bit rate: 250,000 · (1 − 0.945) + 6,000 is about 20 kbit/s."""
VOICE_S = {"train": 108.0, "validation": 64.0, "test": 62.0}
"""Seconds of utterances a voice speaks."""

ACCENTS = (
    "en-us",
    "en-gb",
    "en-gb-x-rp",
    "en-gb-scotland",
    "en-us-nyc",
    "en-gb-x-gbclan",
    "en-029",
    "en-gb-x-gbcwmd",
)
# Variants set an espeak-ng voice's formants. A variant speaks in one split only.
VARIANTS = {
    "train": [
        "m1",
        "f1",
        "m2",
        "f3",
        "m3",
        "Annie",
        "m4",
        "f4",
        "m6",
        "Alicia",
        "m8",
        "Linda",
        "adam",
        "Steph",
        "Alex",
        "belinda",
        "Andy",
        "aunty",
        "benjamin",
        "anika",
        "david",
        "Michael",
        "ed",
        "Mike",
        "Gene",
        "paul",
        "Lee",
        "robert",
        "travis",
        "victor",
    ],
    "validation": ["m7", "f5", "caleb", "Steph2"],
    "test": ["m5", "f2", "john", "Andrea", "rob"],
}

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


@dataclass(frozen=True)
class Voice:
    """One speaker of the corpus."""

    name: str
    espeak: str
    """Accent and variant as espeak-ng's `-v` takes them."""
    split: str
    pitch: int
    """espeak-ng's `-p`, 0 to 99."""
    words_per_minute: int
    noise_db: float
    """White noise under the voice, in dB relative to its speech."""
    seed: int


def voices() -> list[Voice]:
    """Every voice of the corpus, in the order of its files."""
    found = []
    for split, variants in VARIANTS.items():
        for variant in variants:
            number = len(found)
            rng = np.random.default_rng((SEED, number))
            accent = ACCENTS[number % len(ACCENTS)]
            found.append(
                Voice(
                    name=f"{split}-{number:02d}-{variant.lower()}",
                    espeak=f"{accent}+{variant}",
                    split=split,
                    pitch=int(rng.integers(30, 71)),
                    words_per_minute=int(rng.integers(120, 156)),
                    noise_db=float(rng.uniform(-40, -28)),
                    seed=number,
                )
            )
    return found


def sentence(rng: np.random.Generator) -> str:
    """A string of one to six digits, or a command."""
    return digit_string(rng) if rng.random() < 0.55 else command(rng)


def digit_string(rng: np.random.Generator) -> str:
    words = [DIGITS[digit] for digit in rng.integers(0, 10, rng.integers(1, 7))]
    return " ".join("oh" if word == "zero" and rng.random() < 0.25 else word for word in words)


def command(rng: np.random.Generator) -> str:
    verb = rng.choice(["start", "stop", "pause", "resume", "show"])
    what = rng.choice(["loss", "accuracy", "memory", "power"])
    forms = [
        f"set {rng.choice(['batch size', 'seed'])} to {number(rng)}",
        f"{verb} run {number(rng)}",
        f"{verb} all jobs",
        f"show {what} of run {number(rng)}",
        f"show {what} of all runs",
        f"use {number(rng)} cores",
        f"{rng.choice(['save', 'load'])} model {number(rng)}",
    ]
    return forms[rng.choice(len(forms), p=[0.25, 0.2, 0.1, 0.15, 0.1, 0.1, 0.1])]


def number(rng: np.random.Generator) -> str:
    """A number word: 1 to 9, ten, 20 to 99, or whole hundreds."""
    unit, tens = DIGITS[rng.integers(1, 10)], str(rng.choice(TENS))
    forms = [unit, "ten", tens, f"{tens} {unit}", f"{unit} hundred"]
    return forms[rng.choice(5, p=[0.35, 0.05, 0.15, 0.35, 0.1])]


def speak(voice: Voice, text: str, rng: np.random.Generator) -> np.ndarray:
    """One utterance at 16 kHz: quiet, words, quiet; its speech at a level drawn for it."""
    pitch = voice.pitch + rng.integers(-6, 7)
    speed = round(voice.words_per_minute * rng.uniform(0.9, 1.1))
    done = subprocess.run(
        ["espeak-ng", "-v", voice.espeak, "-p", str(pitch), "-s", str(speed), "--stdout", "--", text],
        capture_output=True,
        check=True,
    )
    wave, rate_hz = soundfile.read(io.BytesIO(done.stdout))
    assert rate_hz == 22_050, rate_hz
    wave = resample_poly(wave, 320, 441)  # 22,050 Hz to 16,000 Hz
    loud = np.flatnonzero(np.abs(wave) > 0.02 * np.abs(wave).max())
    wave = wave[loud[0] : loud[-1] + 1]
    level_db = rng.uniform(-28, -20)
    wave *= 10 ** (level_db / 20) / np.sqrt(np.mean(wave**2))
    before, after = (rng.uniform(*MARGIN_S, 2) * SAMPLE_RATE_HZ).astype(int)
    after += -(before + len(wave) + after) % GRID
    return np.pad(wave, (before, after))


def make_voice(voice: Voice, folder: Path, seconds: float) -> list[dict]:
    """Write the file of one voice, and return its lines of the manifest."""
    rng = np.random.default_rng((SEED, 1000 + voice.seed))
    pieces, lines, position, spoken = [], [], 0, 0.0
    while spoken < seconds:
        pause = int(rng.uniform(*PAUSE_S) * SAMPLE_RATE_HZ) // GRID * GRID
        text = sentence(rng)
        wave = speak(voice, text, rng)
        pieces += [np.zeros(pause), wave]
        offset_s, duration_s = (position + pause) / SAMPLE_RATE_HZ, len(wave) / SAMPLE_RATE_HZ
        lines.append(
            {
                "audio_filepath": f"audio/{voice.name}.opus",
                "offset": round(offset_s, 2),
                "duration": round(duration_s, 2),
                "text": text,
                "speaker": voice.name,
                "split": voice.split,
            }
        )
        position += pause + len(wave)
        spoken += duration_s
    audio = np.concatenate([*pieces, np.zeros(int(PAUSE_S[1] * SAMPLE_RATE_HZ))])
    speech_db = -24.0  # the middle of the levels drawn in `speak`
    audio += rng.standard_normal(len(audio)) * 10 ** ((speech_db + voice.noise_db) / 20)
    soundfile.write(
        folder / "audio" / f"{voice.name}.opus",
        np.clip(audio, -1, 1).astype(np.float32),
        SAMPLE_RATE_HZ,
        format="OGG",
        subtype="OPUS",
        compression_level=COMPRESSION_LEVEL,
    )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().folder
    shutil.rmtree(folder / "audio", ignore_errors=True)
    (folder / "audio").mkdir(parents=True)
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda voice: make_voice(voice, folder, VOICE_S[voice.split]), voices())
        lines = [line for of_voice in made for line in of_voice]
    with (folder / "manifest.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    for split in VOICE_S:
        chosen = [line for line in lines if line["split"] == split]
        hours = sum(line["duration"] for line in chosen) / 3600
        print(f"{split}: {len(chosen)} utterances, {hours:.3f} h, {len({x['speaker'] for x in chosen})} voices")
    size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{size_bytes / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
