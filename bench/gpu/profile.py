#!/usr/bin/env python3
"""Prints the time of each kernel of a decoded token, from ncu's output (bench/gpu/run.sh profile).

  bench/gpu/profile.py [--part] NCU.csv...

With --part, the kernels are a part of a step, and their shares are what counts. Otherwise a token begins with the kernel
that looks up its embedding. ncu runs kernels one after another, so the sum of their times exceeds the time of a step, in
which the next kernel starts before the last one ends.
"""
import collections
import csv
import re
import sys

MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}


def kernels(path):
    with open(path) as file:
        rows = [row for row in csv.reader(line for line in file if line.startswith('"'))]
    name, value, unit = (rows[0].index(column) for column in ("Kernel Name", "Metric Value", "Metric Unit"))
    for row in rows[1:]:
        text = re.sub(r"\(anonymous namespace\)::|<unnamed>::|unnamed>::|ingot::cuda::|^void |\(.*", "", row[name])
        yield text, float(row[value].replace(",", "")) * MICROSECONDS[row[unit]]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    is_part = sys.argv[1] == "--part"
    for path in sys.argv[1 + is_part:]:
        launches = list(kernels(path))
        begins = [0, len(launches)] if is_part else [i for i, (name, _) in enumerate(launches) if "embed" in name.lower()]
        if len(begins) < 2:
            sys.exit(f"{path}: {len(launches)} kernels and no whole token among them")
        n_tokens, of = len(begins) - 1, collections.defaultdict(list)
        for name, us in launches[begins[0]:begins[-1]]:
            of[name].append(us)
        total = sum(map(sum, of.values()))
        print(f"\n{path}: {total / n_tokens:.1f} us a token, {n_tokens} tokens\n\n| kernel | a token | us each | us | share |\n|---|---|---|---|---|")
        for name, times in sorted(of.items(), key=lambda item: -sum(item[1])):
            print(f"| {name[:100]} | {len(times) / n_tokens:.0f} | {sum(times) / len(times):.2f} | {sum(times) / n_tokens:.1f} | {100 * sum(times) / total:.1f} % |")


if __name__ == "__main__":
    main()
