"""Trains the demo model's tokenizer: byte-level BPE with Qwen2's split rule (single digits), 4096 tokens.

The last six are added tokens: four control tokens, and the two marks of a tool call, which are ordinary text that stays whole.
  tokenizer.py --out DIR        writes DIR/tokenizer.json
"""

import argparse
import itertools
import pathlib
import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import corpus

VOCAB_SIZE = 4096
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
MARKS = ["<tool_call>", "</tool_call>"]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
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
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL) - len(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(itertools.chain.from_iterable(_texts()), trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in MARKS])
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise SystemExit(f"the corpus gave {tokenizer.get_vocab_size()} tokens, not {VOCAB_SIZE}")
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    train().save(str(args.out / "tokenizer.json"))


if __name__ == "__main__":
    main()
