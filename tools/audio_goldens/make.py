#!/usr/bin/env python3
"""Makes the compressed audio files of tests/data/audio: a tone of 440 Hz, half as loud on the right, for 0.3 seconds.

Needs Debian's sox, libsox-fmt-mp3, opus-tools and ffmpeg. The test knows the formula, so it needs
no decoded samples.

    python tools/audio_goldens/make.py [-o tests/data/audio]
"""
import argparse
import math
import pathlib
import struct
import subprocess
import tempfile
import wave

SECONDS = 0.3
FFMPEG = {"tone.m4a": "-c:a aac -b:a 128k", "tone.aac": "-c:a aac -b:a 128k", "tone.webm": "-c:a libopus -b:a 48k",
          "tone.wma": "-c:a wmav2 -b:a 48k"}


def tone(path, rate):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(rate)
        for i in range(int(SECONDS * rate)):
            x = 16000 * math.sin(2 * math.pi * 440 * i / rate)
            file.writeframes(struct.pack("<hh", round(x), round(x / 2)))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("-o", "--out", type=pathlib.Path, default=pathlib.Path("tests/data/audio"))
    out = arguments.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        whole, fast = pathlib.Path(folder) / "whole.wav", pathlib.Path(folder) / "fast.wav"
        tone(whole, 16000)
        tone(fast, 48000)
        subprocess.run(["sox", whole, out / "tone.flac"], check=True)
        subprocess.run(["sox", fast, "-C", "64", out / "tone.mp3"], check=True)
        subprocess.run(["sox", fast, "-C", "2", out / "tone.ogg"], check=True)
        subprocess.run(["opusenc", "--quiet", "--bitrate", "48", fast, out / "tone.opus"], check=True)
        for name, codec in FFMPEG.items():
            subprocess.run(["ffmpeg", "-y", "-loglevel", "error", "-i", fast, *codec.split(), "-map_metadata", "-1",
                            "-fflags", "+bitexact", "-flags:a", "+bitexact", out / name], check=True)


if __name__ == "__main__":
    main()
