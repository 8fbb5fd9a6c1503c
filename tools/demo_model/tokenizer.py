"""Trains the demo model's tokenizer: byte-level BPE with Qwen2's split rule (single digits), 4096 tokens.

The last six are added tokens: four control tokens, and the two marks of a tool call, which are ordinary text that stays whole.
  tokenizer.py --out DIR        writes DIR/tokenizer.json
"""

import itertools
import re

import byte_bpe
import corpus

VOCAB_SIZE = 4096
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
MARKS = ["<tool_call>", "</tool_call>"]
SEED = "tokenizer"
TRAINING_BYTES = 24_000_000


def _texts():
    """The corpus without the added tokens, which are never split or merged."""
    cut = re.compile("|".join(map(re.escape, SPECIAL + MARKS)))
    size = 0
    for text in corpus.documents(SEED, 0):
        size += len(text)
        yield [piece for piece in cut.split(text) if piece]
        if size > TRAINING_BYTES:
            return


def train():
    texts = itertools.chain.from_iterable(_texts())
    return byte_bpe.train(texts, VOCAB_SIZE, SPECIAL, MARKS)


if __name__ == "__main__":
    byte_bpe.main(__doc__, train)
