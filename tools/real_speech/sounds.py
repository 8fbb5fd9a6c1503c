"""The sounds of `make test-real`: recordings with their texts, and sounds without words."""
import gzip
import pathlib
import random
import re
import subprocess
import wave

import numpy as np

RATE = 16000
LIBRIVOX = pathlib.Path("/usr/share/pocketsphinx/test/data/librivox")
ASTERISK = pathlib.Path("/usr/share/asterisk/sounds/en_US_f_Allison")
ASTERISK_TEXTS = pathlib.Path("/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz")
N_PROMPTS = 120  # of Asterisk's
SENTENCES = [
    "The harbor was quiet when the first boats came back from the sea.", "Please leave your message after the tone.",
    "She opened the old book and read the first page aloud.", "A cold wind moved the leaves across the empty street.",
    "We should meet again next week to discuss the results.", "The children built a small house out of wood and stones.",
    "Nobody knew why the lights in the library were still on.", "He bought fresh bread, some cheese and a bottle of milk.",
    "The train to the mountains leaves early in the morning.", "After the rain stopped, we walked along the river."]
VOICES = [("en-us", 150), ("en-gb", 170), ("en-us+f3", 190)]


def write_wav(path, samples, rate=RATE):
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1), out.setsampwidth(2), out.setframerate(rate)
        out.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def read_wav(path):
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768, file.getframerate()


def at_16_khz(samples, rate):
    """By a Fourier transform of the whole sound, so that every program gets the same samples."""
    n = round(len(samples) * RATE / rate)
    spectrum = np.fft.rfft(samples)
    kept = np.zeros(n // 2 + 1, complex)
    m = min(len(kept), len(spectrum))
    kept[:m] = spectrum[:m]
    return np.fft.irfft(kept, n) * n / len(samples)


def librivox(work):
    found = []
    for line in (LIBRIVOX / "transcription").read_text().splitlines():
        text, name = re.fullmatch(r"(.*)\((.*)\)\s*", line).groups()
        file = next(LIBRIVOX.glob(f"{name.strip()}.wav"), None)
        if file:
            found.append((file, re.sub(r"</?s>", "", text)))
    return found


def espeak(work):
    found = []
    for v, (voice, speed) in enumerate(VOICES):
        for i, sentence in enumerate(SENTENCES):
            file = work / f"espeak-{v}-{i}.wav"
            subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-w", file, sentence], check=True)
            found.append((file, sentence))
    return found


def noisy(work):
    """espeak-ng's sentences, with white noise 10 dB below."""
    found, noise = [], np.random.default_rng(1)
    for file, sentence in espeak(work):
        samples, rate = read_wav(file)
        level = np.sqrt(np.mean(samples ** 2)) * 10 ** -0.5
        to = work / file.name.replace("espeak", "noisy")
        write_wav(to, samples + noise.normal(0, level, len(samples)), rate)
        found.append((to, sentence))
    return found


def asterisk(work):
    """Prompts of telephones, 8,000 samples a second. A prompt without words has the text ""."""
    texts = {}
    for line in gzip.decompress(ASTERISK_TEXTS.read_bytes()).decode(errors="replace").splitlines():
        name, _, text = line.partition(":")
        if text and not line.startswith(";"):
            texts[name.strip()] = re.sub(r"[\[(].*?[\])]", "", text).strip()
    files = [file for file in sorted(ASTERISK.rglob("*.wav"))
             if str(file.relative_to(ASTERISK).with_suffix("")) in texts]
    found = []
    for file in random.Random(1).sample(files, min(N_PROMPTS, len(files))):
        name = str(file.relative_to(ASTERISK).with_suffix(""))
        to = work / f"asterisk-{name.replace('/', '-')}.wav"
        to.write_bytes(file.read_bytes())
        found.append((to, texts[name]))
    return found


SETS = {"librivox": librivox, "espeak": espeak, "espeak, noise 10 dB below": noisy, "asterisk": asterisk}


def seconds_of(file):
    samples, rate = read_wav(file)
    return len(samples) / rate


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
