#!/usr/bin/env python3
"""How much longer a step takes that mixes decodes with a prompt, compared with the prompt's part alone.

usage: mixed.py MIXED PROMPTS    both from `ingot bench engine --trace FILE --trace-steps`, PROMPTS with answers of one token

The median time for a token in PROMPTS, times the prompt tokens of a mixed step, is the time of the prompt's part. Only
the second half of the steps counts, because a GPU is faster until it reaches its limit of power.
"""
import statistics
import sys

from device_steps import device_steps


def full_steps(path):
    """The tokens of the largest step, and [(sequences, us)] of the second half of such steps."""
    steps = device_steps(path)
    most = max((n for n, *_ in steps), default=0)
    full = [(n_seqs, end - begin) for n, n_seqs, begin, end in steps if n == most]
    return most, full[len(full) // 2:]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    (most, full), (most_alone, alone) = full_steps(sys.argv[1]), full_steps(sys.argv[2])
    mixed = [(n_seqs, us) for n_seqs, us in full if n_seqs >= 16]
    if len(alone) < 10 or len(mixed) < 10:
        sys.exit(f"{len(alone)} steps of prompts alone and {len(mixed)} mixed steps, of {len(full)} full steps: too few")
    each = statistics.median(us for _, us in alone) / most_alone
    ratios = [us / (each * (most - n_seqs)) for n_seqs, us in mixed]
    print(f"{len(mixed)} mixed steps of {most} tokens, {statistics.mean(n for n, _ in mixed):.0f} sequences: "
          f"{statistics.mean(us for _, us in mixed) / 1000:.2f} ms, {statistics.mean(ratios):.3f} of the prompt's part alone "
          f"({len(alone)} steps of {most_alone} prompt tokens: {each * most_alone / 1000:.2f} ms)")


main()
