"""Trains the vision model, on one GPU if there is one.

  train.py --out DIR --minutes 8
DIR has tokenizer.json. Rows are drawn beside the training and stay in a pool, from which each batch draws at random, so
the GPU never waits for pictures. Writes weights-N.npz (float32, Hugging Face names).
"""

import argparse
import math
import pathlib
import sys
import threading
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from network import SIDE, VisionModel
from rows import CHUNK, TIME, Rows

sys.path.append(str(pathlib.Path(__file__).parent.parent / "demo_model"))
from weights import save  # noqa: E402


class Pool:
    """Rows on the device. A thread adds new ones; when the pool is full, they replace the oldest."""

    def __init__(self, rows, size, device):
        self.size, self.n, self.rows, self.device = size, 0, rows, device
        self.parts = [torch.empty((size, SIDE, SIDE, 3), dtype=torch.uint8, device=device),
                      torch.empty((size, TIME + 1), dtype=torch.int16, device=device),
                      torch.empty((size, TIME + 1), dtype=torch.uint8, device=device)]
        threading.Thread(target=self.fill, daemon=True).start()

    def fill(self):
        while True:
            at = self.n % self.size
            for part, new in zip(self.parts, self.rows.next()):
                part[at:at + CHUNK] = torch.from_numpy(new).to(self.device)
            self.n += CHUNK

    def batch(self, n):
        pick = torch.randint(min(self.n, self.size), (n,), device=self.device)
        pixels, ids, learned = (part[pick] for part in self.parts)
        return pixels, ids[:, :-1].long(), ids[:, 1:].long(), learned[:, 1:].bool()


def loss_of(model, pixels, ids, targets, learned, image_id):
    logits = model(pixels, ids, image_id).float()
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (losses * learned.flatten()).sum() / learned.sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=8, help="how long to train; the learning rate falls along this time")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--pool", type=int, default=1_000_000, help="rows that stay on the device")
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--warmup", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    path = str(args.out / "tokenizer.json")
    image_id = Tokenizer.from_file(path).token_to_id("<image>")
    rows = Rows(path, args.seed, args.workers)  # before CUDA starts, because the processes are forks
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = VisionModel().to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters on {device}", flush=True)
    pool = Pool(rows, args.pool // CHUNK * CHUNK, device)
    matrices, vectors = ([p for p in model.parameters() if (p.ndim > 1) == m] for m in (True, False))
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=args.lr, betas=(0.9, 0.98), fused=device == "cuda")
    compiled = torch.compile(model) if device == "cuda" else model
    while pool.n < 8 * args.batch:
        time.sleep(0.1)
    began, recent, step = time.time(), [], 0
    while (progress := (time.time() - began) / (60 * args.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min((step + 1) / args.warmup, 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = loss_of(compiled, *pool.batch(args.batch), image_id)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent.append(loss.detach())
        step += 1
        if len(recent) == 20:
            mean = torch.stack(recent).mean().item()  # also stops the host from running far ahead of the device
            recent = []
            if step % 200 == 0 or device == "cpu":
                print(f"step {step} loss {mean:.4f}, {pool.n} pictures, {time.time() - began:.0f} s", flush=True)
        if step % 2000 == 0:
            save(model.state_dict(), args.out)
    save(model.state_dict(), args.out)
    print(f"{step} steps, {step * args.batch / 1e6:.1f}M rows of {pool.n / 1e6:.2f}M pictures, last loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
