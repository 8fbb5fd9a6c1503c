"""Trains the demo model on one GPU from the shards that shards.py wrote.

  train.py --data DIR --out DIR --minutes 7.5
Each row of a batch starts at the start of a document, since that is where prompts start. Writes config.json and
weights-N.npz (float32, Hugging Face names).
"""

import argparse
import dataclasses
import json
import math
import pathlib
import time

import numpy as np
import torch

import weights
from model import Config, Llama


def load_data(folder, device):
    ids, starts, offset = [], [], 0
    for path in sorted(folder.glob("shard_*.npz"), key=lambda p: int(p.stem.split("_")[1])):
        shard = np.load(path)
        ids.append(shard["ids"].astype(np.int16))  # ids are below 2^15
        starts.append(shard["starts"] + offset)
        offset += len(ids[-1])
    return torch.from_numpy(np.concatenate(ids)).to(device), torch.from_numpy(np.concatenate(starts)).to(device)


class Batches:
    """Rows that start at documents drawn at random."""

    def __init__(self, ids, starts, rows, context, seed):
        self.ids, self.rows, self.context = ids, rows, context
        self.starts = starts[starts < len(ids) - context - 1]
        self.generator = torch.Generator(device=ids.device).manual_seed(seed)
        self.span = torch.arange(context + 1, device=ids.device)

    def next(self):
        pick = torch.randint(len(self.starts), (self.rows,), device=self.ids.device, generator=self.generator)
        rows = self.ids[self.starts[pick][:, None] + self.span].long()
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def learning_rate(step, progress, args):
    return args.lr * min((step + 1) / args.warmup, 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))


def save(model, out):
    weights.save(model.state_dict(), out)
    (out / "config.json").write_text(json.dumps(dataclasses.asdict(model.config), indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument(
        "--minutes", type=float, default=7.5, help="how long to train; the learning rate falls along this time"
    )
    parser.add_argument("--steps", type=int, default=1_000_000, help="at most so many steps")
    parser.add_argument("--rows", type=int, default=64, help="rows of a batch")
    parser.add_argument("--lr", type=float, default=2.5e-3)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = Config()
    model = Llama(config).to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters", flush=True)
    ids, starts = load_data(args.data, device)
    batches = Batches(ids, starts, args.rows, config.context, args.seed)
    matrices, vectors = ([p for p in model.parameters() if (p.ndim == 2) == m] for m in (True, False))
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(0.9, 0.95),
        eps=1e-8,
        fused=device == "cuda",
    )
    step_fn = torch.compile(model) if device == "cuda" else model
    began, recent = time.time(), []
    for step in range(args.steps):
        progress = max((time.time() - began) / (60 * args.minutes), step / args.steps)
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, progress, args)
        x, y = batches.next()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = step_fn(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent.append(loss.detach())
        if step % 10 == 9:
            mean = torch.stack(recent).mean().item()  # also stops the host from running far ahead of the device
            recent = []
            if step % 500 == 499:
                elapsed = time.time() - began
                print(
                    f"step {step + 1} loss {mean:.4f} {(step + 1) * x.numel() / elapsed / 1e6:.2f}M tok/s {elapsed:.0f}s",
                    flush=True,
                )
        if step % 2000 == 1999:
            save(model, args.out)
    save(model, args.out)
    print(f"{step} steps, {step * x.numel() / 1e6:.0f}M tokens, last loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
