"""Trains the tokenizer on questions and answers: byte-level BPE with Qwen2's split rule, and SmolVLM's control tokens.

  tokenizer.py --out DIR        writes DIR/tokenizer.json
"""

import pathlib
import random
import sys

import questions
import scenes

sys.path.append(str(pathlib.Path(__file__).parent.parent / "demo_model"))
import byte_bpe  # noqa: E402

VOCAB_SIZE = 512
SPECIAL = ["<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>", "<row_1_col_1>", "<|pad|>"]


def texts():
    rng = random.Random("tokenizer")
    for _ in range(20000):
        scene = scenes.draw_scene(rng)
        for shape in scene.shapes:
            shape.box = (1, 2, 3, 4)
        _, question, answer = questions.ask(rng, scene)
        yield f"User: {question}\n\nAssistant: {answer}"


def train():
    return byte_bpe.train(texts(), VOCAB_SIZE, SPECIAL)


if __name__ == "__main__":
    byte_bpe.main(__doc__, train)
