"""How much longer a step takes that mixes decodes with a prompt, compared with the prompt's part alone.

usage: mixed.py TRACE    TRACE: from `ingot bench engine --trace TRACE --trace-steps`

The first full steps have only prompts. Their median time for a token, times the prompt tokens of a mixed step, is the
time of the prompt's part.
"""
import json
import statistics
import sys


def steps(path):
    track, found = None, []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("{"):
                continue
            event = json.loads(line.rstrip().rstrip(","))
            if event["name"] == "thread_name" and event["args"]["name"] == "gpu":
                track = event["tid"]
            elif event["ph"] == "X" and event["tid"] == track:
                found.append((event["args"]["tokens"], event["args"]["sequences"], event["dur"]))
    return found


def main():
    all_steps = steps(sys.argv[1])
    most = max(n for n, _, _ in all_steps)
    full = [(n_seqs, us) for n, n_seqs, us in all_steps if n == most]
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
