#!/usr/bin/env python3
"""Measures the gaps between tokens of text streams, alone and while the same server transcribes a recording.

    bench/speech_beside_text.py TEXT_MODEL SPEECH_MODEL [--device cuda] [--concurrency 8]
    bench/random_speech.py large-v3-turbo ggml-turbo.bin; bench/cpu/random_model.py llama-3.1-8b 8b.gguf --type Q4_K_M
    bench/speech_beside_text.py 8b.gguf ggml-turbo.bin --device cuda --concurrency 16

The recording is ten minutes of voice-like sound (random_speech.py), or FILE of --sound. It is sent at once to
/v1/audio/transcriptions with a temperature, so that no window is written twice. Text is written without drafts, so each
token is a step. Prints a line for each run of `ingot bench serve`: percentiles of the gaps in ms, tokens a second, and
whether the recording was being transcribed during the whole run. Then the seconds that the recording took, by itself
and beside the text.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from random_speech import write_sound

BOUNDARY = "ingot-bench-boundary"


def wait_until_loaded(url):
    for _ in range(6000):
        try:
            return urllib.request.urlopen(url + "/health").close()
        except urllib.error.HTTPError:  # 503: models are being loaded
            time.sleep(0.1)
    sys.exit("speech_beside_text.py: the models were not loaded after ten minutes")


def start_server(args):
    """The process and its address."""
    command = [args.ingot, "serve", args.text, args.speech, "--port", "0", "--device", args.device, "--speculate", "off",
               "--max-body-bytes", 1 << 30, *args.server]
    server = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    lines = []
    for line in server.stderr:
        lines.append(line)
        if found := re.search(r"http://[\w.:\[\]]+", line):
            threading.Thread(target=server.stderr.read, daemon=True).start()  # so that the server never waits for a reader
            wait_until_loaded(found[0])
            return server, found[0]
    sys.exit("speech_beside_text.py: the server did not start:\n" + "".join(lines[-5:]))


def transcribe(url, sound):
    """Sends a recording, and returns the seconds until its text."""
    fields = {"model": "whisper", "temperature": "0.2", "language": "en"}
    parts = [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="sound.wav"\r\n\r\n'
    body = ("".join(parts) + head).encode() + sound.read_bytes() + f"\r\n--{BOUNDARY}--\r\n".encode()
    request = urllib.request.Request(url + "/v1/audio/transcriptions", body,
                                     {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})
    start = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=3600) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        raise OSError(f"{error}: {error.read().decode()}") from error
    return time.monotonic() - start


class Recording(threading.Thread):
    def __init__(self, url, sound):
        super().__init__(daemon=True)
        self.url, self.sound, self.seconds, self.fault = url, sound, None, None
        self.start()

    def run(self):
        try:
            self.seconds = transcribe(self.url, self.sound)
        except OSError as error:
            self.fault = error


def text_run(args, url):
    name = pathlib.Path(args.text).stem
    command = [args.ingot, "bench", "serve", "--url", url, "--model", name, "--concurrency", args.concurrency, "--requests", args.requests,
               "-p", args.prompt, "-n", args.tokens, "-o", "json"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    run = json.loads(done.stdout) if done.returncode == 0 else {"failed": 1}
    if run["failed"] or run.get("refused"):
        sys.exit(f"speech_beside_text.py: text requests failed: {done.stderr.strip()[-300:]}")
    return run


def show(kind, run):
    gaps = " | ".join(f"{run['itl_ms'][key]:.1f}" for key in ("p50", "p90", "p99", "max"))
    print(f"| {kind} | {gaps} | {run['ttft_ms']['p50']:.0f} | {run['output_tokens_per_s']:.1f} |", flush=True)


def measure(args, url, sound):
    print("| run | gap p50 ms | p90 | p99 | max | first token p50 | tok/s |\n|---|---|---|---|---|---|---|")
    text_run(args, url)  # warms up
    show("text alone", text_run(args, url))
    recording, n_inside = Recording(url, sound), 0
    while recording.is_alive() and n_inside < args.rounds:
        run = text_run(args, url)
        n_inside += recording.is_alive()
        show("beside speech" if recording.is_alive() else "beside speech, which ended earlier", run)
    recording.join()
    if recording.fault:
        sys.exit(f"speech_beside_text.py: the recording failed: {recording.fault}")
    alone = transcribe(url, sound)
    print(f"\nthe recording: {alone:.1f} s by itself; {recording.seconds:.1f} s when text runs beside it, in {n_inside} whole runs")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", help="text model")
    parser.add_argument("speech", help="speech model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sound", type=pathlib.Path, help="recording")
    parser.add_argument("--seconds", type=float, default=600, help="of the recording that is made if none is given")
    parser.add_argument("--concurrency", type=int, default=1, help="text streams at once")
    parser.add_argument("--requests", type=int, default=4, help="text requests of a run")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=5, help="most runs beside the recording")
    parser.add_argument("--ingot", default=os.environ.get("INGOT", "build/ingot"))
    parser.add_argument("--server", nargs=argparse.REMAINDER, default=[], help="further arguments of the server, last")
    args = parser.parse_args()
    server, url = start_server(args)
    try:
        with tempfile.TemporaryDirectory() as folder:
            sound = args.sound or pathlib.Path(folder) / "sound.wav"
            if args.sound is None:
                write_sound(args.seconds, sound)
            measure(args, url, sound)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
