"""The demo model's text, generated from a seed: plain stories, small plain texts, and chats in the model's template.

  corpus.py sample --seed 1 -n 5                print some documents
  corpus.py heldout --out FILE                  write the held-out text
Documents end with <|endoftext|>. Shard i of seed s is the same on every machine.
"""

import argparse
import functools
import pathlib
import random

import chat
import stories
import tasks
from chat import FACTS, TEXT
from render import render
from stories import digest, make_story

EOT = "<|endoftext|>"
HELDOUT_SEED = "ingot-heldout-1"
HELDOUT_BYTES = 80_000


def titled(story):
    return f"{story.title}\n\n{story.text}"


def anthology(rng):
    """Several pieces in one document, as in the held-out text."""
    return "\n\n\n".join(titled(make_story(rng)) for _ in range(rng.randint(2, 5)))


def plain_facts(rng):
    """Facts, sums and rows as plain lines, for prompts without a chat template."""
    kind = rng.random()
    if kind < 0.4:
        table = rng.choice([t for t in FACTS if t["name"] not in ("self", "talk", "unknown", "why")])
        facts = rng.sample(table["facts"], min(len(table["facts"]), rng.randint(3, 10)))
        return "\n".join(TEXT.expand(rng, table["a"][0], {"k": k, "v": v}) for k, v in facts)
    if kind < 0.6:
        lines = []
        for _ in range(rng.randint(3, 12)):
            a, b, op = rng.randint(0, 20), rng.randint(0, 20), rng.choice("+-")
            lines.append(f"{a} {op} {b} = {tasks.result(op, a, b)}")
        return "\n".join(lines)
    if kind < 0.9:
        pairs = [chat.fact(rng)[0] if rng.random() < 0.5 else tasks.arithmetic(rng) for _ in range(rng.randint(2, 6))]
        q, a = rng.choice([("Question", "Answer"), ("Q", "A")])
        return "\n\n".join(f"{q}: {ask}\n{a}: {answer}" for ask, answer, _ in pairs)
    return tasks.counting(rng)[2]


def document(rng):
    kind = rng.random()
    if kind < 0.20:
        return make_story(rng).text
    if kind < 0.24:
        return titled(make_story(rng))
    if kind < 0.27:
        return anthology(rng)
    if kind < 0.32:
        return plain_facts(rng)
    return render(*chat.conversation(rng))


@functools.lru_cache(maxsize=None)
def heldout():
    """The held-out text and the digests of its stories, which training leaves out."""
    rng = random.Random(HELDOUT_SEED)
    pieces, size = [], 0
    while size < HELDOUT_BYTES:
        pieces.append(make_story(rng))
        size += len(titled(pieces[-1]).encode()) + 3
    return "\n\n\n".join(map(titled, pieces)) + "\n", {digest(p.text) for p in pieces}


def documents(seed, shard):
    """An endless stream of documents for training, without the held-out stories."""
    stories.avoid |= heldout()[1]
    rng = random.Random(f"ingot-demo-{seed}-{shard}")
    while True:
        yield document(rng)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sample", "heldout"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    if args.what == "heldout":
        args.out.write_text(heldout()[0], encoding="utf-8")
        return
    stream = documents(args.seed, 0)
    for _ in range(args.n):
        print(next(stream) + EOT)


if __name__ == "__main__":
    main()
