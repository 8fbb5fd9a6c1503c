"""Training rows: a picture with a conversation about it, as the chat template writes it.

Processes draw rows; `Rows` hands them over. Only the answers are learned.
"""

import multiprocessing
import random

import numpy as np
from PIL import Image
from tokenizers import Tokenizer

import questions
import scenes
from network import IMAGE_TOKENS, SIDE

TIME = 224
CHUNK = 64
BLIND = "I see no picture."
WHOLE = "<fake_token_around_image><global-img>" + "<image>" * IMAGE_TOKENS + "<fake_token_around_image>"
# As llama.cpp shows a picture: as the one tile of a grid, and then whole. It adds the line ends as two tokens.
TILED = ["<fake_token_around_image><row_1_col_1>" + "<image>" * IMAGE_TOKENS + "\n", "\n\n" + WHOLE]


def fit(picture):
    """The processor's two steps: the longer side becomes SIDE, then both."""
    w, h = picture.size
    if w >= h:
        w, h = SIDE, int(SIDE * h / w)
    else:
        w, h = int(SIDE * w / h), SIDE
    w, h = w + w % 2, h + h % 2
    return picture.resize((w, h), Image.Resampling.LANCZOS).resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def first_parts(rng, question):
    """The user's first turn, in pieces that are divided into tokens on their own."""
    shown = [WHOLE] if rng.random() < 0.8 else TILED
    if rng.random() < 0.2:  # the question first
        return [f"<|im_start|>User: {question}" + shown[0], *shown[1:]]
    return ["<|im_start|>User:" + shown[0], *shown[1:-1], shown[-1] + question] if len(shown) > 1 else [
        "<|im_start|>User:" + shown[0] + question]


def conversation(rng, scene, encode):
    """(ids, learned): answers are learned, with the token that ends them."""
    blind = rng.random() < 0.03
    ids, learned = [], []
    while True:
        _, question, answer = questions.ask(rng, scene)
        if blind:
            pieces, answer = [f"<|im_start|>User: {question}" if not ids else f"User: {question}"], BLIND
        else:
            pieces = [f"User: {question}"] if ids else first_parts(rng, question)
        pieces[-1] += "<end_of_utterance>\nAssistant:"
        asked = [i for piece in pieces for i in encode(piece)]
        said, after = encode(f" {answer}<end_of_utterance>"), encode("\n")
        if len(ids) + len(asked) + len(said) + len(after) > TIME + 1:
            return ids, learned
        ids += asked + said + after
        learned += [0] * len(asked) + [1] * len(said) + [0] * len(after)


def make_rows(seed, tokenizer, n):
    rng = random.Random(seed)
    pixels = np.empty((n, SIDE, SIDE, 3), np.uint8)
    ids = np.full((n, TIME + 1), tokenizer.token_to_id("<|pad|>"), np.int16)
    learned = np.zeros((n, TIME + 1), np.uint8)
    for i in range(n):
        picture, scene = scenes.make(rng.getrandbits(64))
        pixels[i] = np.asarray(fit(picture))
        row, mask = conversation(rng, scene, lambda text: tokenizer.encode(text).ids)
        ids[i, :len(row)], learned[i, :len(mask)] = row, mask
    return pixels, ids, learned


def work(path, seed, index, queue):
    tokenizer, n = Tokenizer.from_file(path), 0
    while True:
        queue.put(make_rows(f"{seed} {index} {n}", tokenizer, CHUNK))
        n += 1


class Rows:
    """Chunks of rows from as many processes as there are workers."""

    def __init__(self, path, seed, workers):
        context = multiprocessing.get_context("fork")
        self.queue = context.Queue(4 * workers)
        for i in range(workers):
            context.Process(target=work, args=(path, seed, i, self.queue), daemon=True).start()

    def next(self):
        return self.queue.get()
