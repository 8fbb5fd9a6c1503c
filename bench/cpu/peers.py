#!/usr/bin/env python3
"""Rows and the table of peers.sh.

    peers.py add FILE SHAPE TYPE PROGRAM < the CSV of `ingot bench` or llama-bench
    peers.py table FILE
"""
import csv
import pathlib
import statistics
import sys

COLUMNS = ["cpu", "shape", "type", "program", "test", "tok_s"]


def core_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def test_of(row):  # llama-bench has two columns for what ingot writes as pp512 and tg64
    if "test" in row:
        return row["test"]
    return f"pp{row['n_prompt']}" if int(row["n_prompt"]) > 0 else f"tg{row['n_gen']}"


def add(path, shape, kind, program):
    rows = list(csv.DictReader(sys.stdin))
    if not rows:
        sys.exit(f"peers.py: {program} printed no rows")
    new = not pathlib.Path(path).exists()
    with open(path, "a", newline="") as out:
        writer = csv.writer(out)
        if new:
            writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow([core_name(), shape, kind, program, test_of(row), row["avg_ts"]])


def table(path):
    medians, programs, cores = {}, [], set()
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            cores.add(row["cpu"])
            medians.setdefault((row["shape"], row["type"], row["test"]), {}).setdefault(row["program"], []).append(float(row["tok_s"]))
            programs += [row["program"]] if row["program"] not in programs else []
    peers = [p for p in programs if p != "ingot"]
    print(f"{', '.join(sorted(cores))}, medians, tok/s; x: ingot over the best peer\n")
    print("| shape | type | test | " + " | ".join(["ingot"] + peers + ["x"]) + " |")
    print("|" + "---|" * (len(peers) + 5))
    for (shape, kind, test), values in medians.items():
        median = {p: statistics.median(v) for p, v in values.items()}
        best = max((median[p] for p in peers if p in median), default=None)
        ratio = f"{median['ingot'] / best:.2f}" if best else ""
        speeds = " | ".join(f"{median[p]:.1f}" if p in median else "" for p in ["ingot"] + peers)
        print(f"| {shape} | {kind} | {test} | {speeds} | {ratio} |")


if __name__ == "__main__":
    commands = {"add": (add, 4), "table": (table, 1)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands or len(sys.argv) - 2 != commands[sys.argv[1]][1]:
        sys.exit(__doc__.strip())
    commands[sys.argv[1]][0](*sys.argv[2:])
