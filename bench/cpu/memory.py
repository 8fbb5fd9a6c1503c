#!/usr/bin/env python3
"""Measures the memory of programs that write an answer: resident (RSS), its share without pages of other processes (PSS), and the
peak since the start, in MiB.

    bench/cpu/memory.py [-c TOKENS] [-n TOKENS] [--prompt FILE] MODEL... -- NAME=COMMAND...
    bench/cpu/memory.py -c 32768 model.gguf -- "ingot=build/ingot run {model} -c {context} -n {tokens} -f {prompt}" \\
        "llama.cpp=llama-completion -m {model} -c {context} -n {tokens} -f {prompt} -no-cnv"

RSS and PSS are the largest of the last second, in which the programs write. Programs run one after another. Linux only.
"""
import argparse
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

FIELDS = {"smaps_rollup": ("Rss", "Pss"), "status": ("VmHWM",)}


def memory_of(pid):
    found = {}
    for name, fields in FIELDS.items():
        for line in pathlib.Path(f"/proc/{pid}/{name}").read_text().splitlines():
            key, _, value = line.partition(":")
            if key in fields:
                found[key] = int(value.split()[0]) / 1024
    return found


def measure(command):
    samples = []
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            if (now := memory_of(process.pid)).get("Rss"):
                samples.append((time.monotonic(), now))
        except (OSError, IndexError):  # the process is ending
            pass
        time.sleep(0.1)
    if process.returncode != 0 or not samples:
        sys.exit(f"memory.py: {shlex.join(command)} failed with {process.returncode}")
    last = [now for at, now in samples if at > samples[-1][0] - 1]
    return max(last, key=lambda now: now["Rss"])


def main():
    if "--" not in sys.argv:
        sys.exit(__doc__)
    at = sys.argv.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("-c", "--context", type=int, default=4096)
    parser.add_argument("-n", "--tokens", type=int, default=64)
    parser.add_argument("--prompt", help="a file; default: a short prompt")
    o = parser.parse_args(sys.argv[1:at])
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as short:
        short.write("Tell me a long story about a dragon.")
        short.flush()
        print("| file | context | program | RSS | PSS | peak |\n|---|---|---|---|---|---|")
        for model in o.models:
            for program in sys.argv[at + 1:]:
                name, _, template = program.partition("=")
                values = {"model": model, "context": o.context, "tokens": o.tokens, "prompt": o.prompt or short.name}
                m = measure([part.format(**values) for part in shlex.split(template)])
                print(f"| {pathlib.Path(model).name} | {o.context} | {name} | {m['Rss']:.0f} | {m['Pss']:.0f} | {m['VmHWM']:.0f} |",
                      flush=True)


if __name__ == "__main__":
    main()
