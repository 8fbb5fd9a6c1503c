#!/usr/bin/env python3
"""Prints how long a GPU idled between decode steps, from traces that `--trace FILE --trace-steps` wrote (track "gpu").

  bench/gpu/idle.py TRACE...

A gap is the time from the draws of a step to the first op of the next step, including the copy of the next batch to the
device. Only gaps between two steps of the same sequences with one token each are counted. The first steps are left out,
because they are launched op by op and recorded.
"""
import statistics
import sys

from device_steps import device_steps

WARM_UP = 8  # steps


def decode_steps(path):
    return [(n_seqs, begin, end) for n, n_seqs, begin, end in device_steps(path) if n == n_seqs]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print("| trace | sequences | steps | step, us | gap, us | longest gap, us | idle |\n|---|---|---|---|---|---|---|")
    for path in sys.argv[1:]:
        steps = decode_steps(path)
        for n in sorted({s[0] for s in steps}):
            pairs = [(a, b) for a, b in zip(steps, steps[1:]) if a[0] == b[0] == n][WARM_UP:]
            if len(pairs) < 20:
                continue
            gaps, times = [b[1] - a[2] for a, b in pairs], [b[2] - b[1] for _, b in pairs]
            print(f"| {path} | {n} | {len(pairs)} | {statistics.median(times):.1f} | {statistics.median(gaps):.1f} | {max(gaps):.1f} | "
                  f"{100 * sum(gaps) / (sum(gaps) + sum(times)):.2f} % |")


if __name__ == "__main__":
    main()
