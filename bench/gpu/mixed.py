#!/usr/bin/env python3
"""How much longer a step takes that mixes decodes with a prompt, compared with the prompt's part alone.

usage: mixed.py TRACE    TRACE: from `ingot bench engine --trace TRACE --trace-steps`

The first full steps have only prompts. Their median time for a token, times the prompt tokens of a mixed step, is the
time of the prompt's part.
"""
import statistics
import sys

from device_steps import device_steps


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    steps = device_steps(sys.argv[1])
    most = max((n for n, *_ in steps), default=0)
    full = [(n_seqs, end - begin) for n, n_seqs, begin, end in steps if n == most]
    alone = [us for n_seqs, us in full if n_seqs <= 8]  # prompts of 1,000 tokens
    mixed = [(n_seqs, us) for n_seqs, us in full if n_seqs >= 16]
    if not alone or not mixed:
        sys.exit(f"{len(alone)} steps of prompts alone and {len(mixed)} mixed steps, of {len(full)} full steps: too few")
    each = statistics.median(alone) / most
    ratios = [us / (each * (most - n_seqs)) for n_seqs, us in mixed]
    print(f"{len(mixed)} mixed steps of {most} tokens, {statistics.mean(n for n, _ in mixed):.0f} sequences: "
          f"{statistics.mean(us for _, us in mixed) / 1000:.2f} ms, {statistics.mean(ratios):.3f} of the prompt's part alone "
          f"({len(alone)} steps of prompts: {statistics.median(alone) / 1000:.2f} ms)")


main()
