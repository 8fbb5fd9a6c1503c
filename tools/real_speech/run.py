#!/usr/bin/env python3
"""Tests `ingot transcribe` with real models on real sounds, beside its peers: `make test-real`. Not part of CI.

The models are tiny.en and base, in CTranslate2's form, from PyPI. The recordings are Debian's pocketsphinx-testdata and
some of asterisk-core-sounds-en-wav, and sentences that espeak-ng speaks in three voices and speeds, without and with
noise. Prints word error rates and times real time, and fails if a rate is above its bound, or above that of
faster-whisper by more than three points, or if less than 98 % of the texts are those of transformers. Then transcribes
hours of silence, noise and music, which must give no word by default.

    apt-get install espeak-ng pocketsphinx-testdata asterisk-core-sounds-en-wav
    pip install numpy faster-whisper transformers torch
    python3 tools/real_speech/run.py --ingot build/ingot --work build/real [--minutes 60] [--models tiny.en]
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

import models
import sounds
from errors import errors, words

# Three points above what the worst of ingot's runs had: 2 words of librivox, 9 of espeak's, 31 of Asterisk's.
BOUNDS = {"tiny.en": {"librivox": 0.12, "espeak": 0.15, "espeak, noise 10 dB below": 0.35, "asterisk": 0.11},
          "base": {"librivox": 0.06, "espeak": 0.15, "espeak, noise 10 dB below": 0.33, "asterisk": 0.10}}
LEAST_EQUAL = 0.98  # of texts, to those of transformers


def by_ingot(args, model, files, *flags):
    """[JSON of the recording], seconds"""
    out = args.work / "out"
    start = time.monotonic()
    subprocess.run([args.ingot, "transcribe", "-m", model, "-l", "en", "--json", "-o", out, *flags, *files], check=True,
                   stderr=subprocess.DEVNULL)
    taken = time.monotonic() - start
    return [json.loads((out / f"{file.stem}.json").read_text()) for file in files], taken


def texts_by_ingot(args, model, files, *flags):
    found, taken = by_ingot(args, model, files, *flags)
    return [one["text"] for one in found], taken


def by_faster_whisper(model, files, beams):
    from faster_whisper import WhisperModel
    peer = WhisperModel(str(model), device="cpu", compute_type="float32")
    start = time.monotonic()
    texts = ["".join(s.text for s in peer.transcribe(str(file), language="en", beam_size=beams,
                                                     condition_on_previous_text=False)[0]) for file in files]
    return texts, time.monotonic() - start


def compare_errors(args, model, sets, bounds, failed):
    """Word errors beside faster-whisper."""
    runs = {"ingot": lambda files: texts_by_ingot(args, model, files, "--beams", "1"),
            "ingot, 5 beams": lambda files: texts_by_ingot(args, model, files, "--beams", "5"),
            "ingot, batch 4": lambda files: texts_by_ingot(args, model, files, "--beams", "1", "--batch", "4")}
    try:
        import faster_whisper  # noqa: F401
        runs["faster-whisper"] = lambda files: by_faster_whisper(model, files, 1)
        runs["faster-whisper, 5 beams"] = lambda files: by_faster_whisper(model, files, 5)
    except ImportError:
        print("faster-whisper is not installed")
    for name, pairs in sets.items():
        files, rates = [file for file, text in pairs if text], {}
        texts_read = [text for _, text in pairs if text]
        n_words, seconds = sum(len(words(text)) for text in texts_read), sum(map(sounds.seconds_of, files))
        for run, transcribe in runs.items():
            texts, taken = transcribe(files)
            wrong = sum(errors(words(text), words(found)) for text, found in zip(texts_read, texts))
            rates[run] = wrong / n_words
            print(f"{model.name:8} {name:26} {run:24} {wrong:4} of {n_words} words wrong, {100 * rates[run]:5.1f} %, "
                  f"{seconds / taken:5.1f} times real time", flush=True)
        for run, rate in rates.items():
            peer = "faster-whisper, 5 beams" if "beams" in run else "faster-whisper"
            if run.startswith("ingot") and (rate > bounds[name] or rate > rates.get(peer, 1) + 0.03):
                failed.append(f"{model.name}, {name}: {run} has {100 * rate:.1f} %")


def compare_texts(args, model, sets, failed):
    """The texts of transformers, if both programs get the same samples."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        return print("transformers is not installed")
    peer = models.Peer(model)
    for name, pairs in sets.items():
        files = []
        for file, text in pairs:
            if text:
                files.append(args.work / f"16khz-{file.name}")
                sounds.write_wav(files[-1], sounds.at_16_khz(*sounds.read_wav(file)))
        found, _ = by_ingot(args, model, files, "--beams", "1", "--no-fallback")
        differ = []
        for file, one in zip(files, found):
            text = "".join(s["text"] for s in one["segments"] if s["seek"] == one["segments"][0]["seek"]).strip()
            expected = peer.text_of(sounds.read_wav(file)[0]).strip()
            if text != expected:
                differ.append(f"{file.stem}: '{text}' for '{expected}'")
        equal = 1 - len(differ) / len(files)
        print(f"{model.name:8} {name:26} {len(files) - len(differ)} of {len(files)} texts are those of transformers",
              *differ, sep="\n    ", flush=True)
        if equal < LEAST_EQUAL:
            failed.append(f"{model.name}, {name}: {100 * equal:.1f} % of the texts are those of transformers")


def hear_no_words(args, model, failed):
    for name, samples in sounds.silences(args.minutes).items():
        file = args.work / f"{name.replace(' ', '-')}.wav"
        sounds.write_wav(file, samples)
        for flags in ([], ["--batch", "4"]):
            texts, taken = texts_by_ingot(args, model, [file], *flags)
            print(f"{model.name:8} {name:26} {len(words(texts[0]))} words in {len(samples) / sounds.RATE:.0f} s, "
                  f"{taken:.1f} s taken {' '.join(flags)}", flush=True)
            if words(texts[0]):
                failed.append(f"{model.name}, {name} {' '.join(flags)}: '{texts[0][:60]}'")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ingot", default="build/ingot")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/real"))
    parser.add_argument("--minutes", type=int, default=60, help="of silence, noise and music, with tiny.en; 0: none")
    parser.add_argument("--models", nargs="*", choices=models.PACKAGES, default=list(models.PACKAGES))
    parser.add_argument("--sets", nargs="*", choices=sounds.SETS, default=list(sounds.SETS))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    failed, sets = [], {name: sounds.SETS[name](args.work) for name in args.sets}
    for name in args.models:
        model = models.model_of(name, args.work)
        compare_errors(args, model, sets, BOUNDS[name], failed)
        compare_texts(args, model, {n: s for n, s in sets.items() if "noise" not in n}, failed)
    if args.minutes > 0:
        hear_no_words(args, models.model_of("tiny.en", args.work), failed)
    print("FAILED: " + "; ".join(failed) if failed else "all within bounds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
