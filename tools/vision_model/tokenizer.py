"""Trains the tokenizer on questions and answers: byte-level BPE with Qwen2's split rule, and SmolVLM's control tokens.

  tokenizer.py --out DIR        writes DIR/tokenizer.json
"""

import argparse
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import questions
import scenes

VOCAB_SIZE = 512
SPECIAL = ["<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>", "<row_1_col_1>", "<|pad|>"]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def texts():
    rng = random.Random("tokenizer")
    for _ in range(20000):
        scene = scenes.draw_scene(rng)
        for shape in scene.shapes:
            shape.box = (1, 2, 3, 4)
        _, question, answer = questions.ask(rng, scene)
        yield f"User: {question}\n\nAssistant: {answer}"


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
        vocab_size=VOCAB_SIZE - len(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise SystemExit(f"the text gave {tokenizer.get_vocab_size()} tokens, not {VOCAB_SIZE}")
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    train().save(str(args.out / "tokenizer.json"))


if __name__ == "__main__":
    main()
