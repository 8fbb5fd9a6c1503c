"""Scores a trained vision model on pictures that training never draws: the share of right answers for each kind.

  evaluate.py --run DIR --pictures 2000
Greedy answers.
"""

import argparse
import collections
import pathlib
import random
import sys

import numpy as np
import torch
from tokenizers import Tokenizer

import questions
import scenes
from network import VisionModel
from rows import TIME, fit, first_parts
from score import is_right

sys.path.append(str(pathlib.Path(__file__).parent.parent / "demo_model"))
import weights  # noqa: E402


def examples(n, seed):
    """(pixels, question pieces, kind, answer)"""
    rng = random.Random(f"evaluate {seed}")
    for _ in range(n):
        picture, scene = scenes.make(rng.getrandbits(64), held_out=True)
        kind, question, answer = questions.ask(rng, scene)
        pieces = first_parts(rng, question)
        pieces[-1] += "<end_of_utterance>\nAssistant:"
        yield np.asarray(fit(picture)), pieces, kind, answer


@torch.no_grad()
def answers(model, pixels, prompts, tokenizer, device):
    """Greedy answers, all at once; the whole text is computed again for each token."""
    end, image = tokenizer.token_to_id("<end_of_utterance>"), tokenizer.token_to_id("<image>")
    lengths = torch.tensor([len(p) for p in prompts], device=device)
    ids = torch.full((len(prompts), TIME + 100), tokenizer.token_to_id("<|pad|>"), device=device)
    for row, prompt in zip(ids, prompts):
        row[:len(prompt)] = torch.tensor(prompt)
    done, at, begin = torch.zeros(len(prompts), dtype=torch.bool, device=device), lengths.clone(), lengths.tolist()
    every = torch.arange(len(prompts), device=device)
    while not done.all() and int(at.max()) < ids.shape[1]:
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(pixels, ids[:, :int(at.max())], image)
        token = logits[every, at - 1].argmax(-1)
        done |= token == end
        ids[every[~done], at[~done]] = token[~done]
        at[~done] += 1
    return [tokenizer.decode(row[b:e].tolist()).strip() for row, b, e in zip(ids, begin, at.tolist())]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=pathlib.Path, required=True)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=500)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = Tokenizer.from_file(str(args.run / "tokenizer.json"))
    model = VisionModel().to(device)
    model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.load(args.run).items()})
    right, wrong = collections.defaultdict(list), collections.defaultdict(list)
    todo = list(examples(args.pictures, 1))
    for at in range(0, len(todo), args.batch):
        pixels, pieces, kinds, truths = zip(*todo[at:at + args.batch])
        prompts = [[i for piece in row for i in tokenizer.encode(piece).ids] for row in pieces]
        for kind, truth, said in zip(kinds, truths, answers(
                model, torch.from_numpy(np.stack(pixels)).to(device), prompts, tokenizer, device)):
            right[kind].append(is_right(kind, truth, said))
            if not right[kind][-1]:
                wrong[kind].append((truth, said))
    for kind in sorted(right, key=questions.KINDS.index):
        print(f"{kind:10} {sum(right[kind])} of {len(right[kind])}: {100 * np.mean(right[kind]):.1f} %", flush=True)
        for truth, said in wrong[kind][:4]:
            print(f"    {truth}\n      {said}")


if __name__ == "__main__":
    main()
