#!/usr/bin/env python3
"""How much longer a step takes that mixes decodes with prompts, compared with the prompts' part alone.

usage: mixed.py MIXED PROMPTS    both from `ingot bench engine --trace FILE --trace-steps` with the same prompts,
                                 PROMPTS with answers of one token

Both runs begin with a cool GPU and have about as many steps with prompts, so both reach the limit of power.
"""
import sys

from device_steps import device_steps


def full_steps(path):
    """The tokens of the largest step, and [(sequences, us)] of the steps with as many."""
    steps = device_steps(path)
    most = max((n for n, *_ in steps), default=0)
    return most, [(n_seqs, end - begin) for n, n_seqs, begin, end in steps if n == most]


def ratio(steps, most, us_a_token):
    """The time of these mixed steps, divided by the time that their prompt tokens take alone."""
    return sum(us for _, us in steps) / sum((most - n_seqs) * us_a_token for n_seqs, _ in steps)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    (most, full), (most_alone, alone) = full_steps(sys.argv[1]), full_steps(sys.argv[2])
    mixed = [(n_seqs, us) for n_seqs, us in full if n_seqs >= 4]  # a step has parts of up to three prompts
    if len(alone) < 10 or len(mixed) < 10:
        sys.exit(f"{len(alone)} steps of prompts alone and {len(mixed)} mixed steps, of {len(full)} full steps: too few")
    us_a_token = sum(us for _, us in alone) / len(alone) / most_alone
    last = mixed[-len(mixed) // 4:]

    def decodes(steps):
        return sum(n_seqs for n_seqs, _ in steps) / len(steps)

    print(f"{len(mixed)} mixed steps of {most} tokens, on average {decodes(mixed):.0f} sequences: "
          f"{sum(us for _, us in mixed) / len(mixed) / 1000:.2f} ms, {ratio(mixed, most, us_a_token):.3f} "
          f"of the prompts' part alone; the last quarter with {decodes(last):.0f} sequences: "
          f"{ratio(last, most, us_a_token):.3f} "
          f"({len(alone)} steps of prompts: {us_a_token * most_alone / 1000:.2f} ms)")


main()
