"""Trains two drafters for the demo model on the same generated text: an MTP head (one layer, which reads the model's
hidden states) and a small draft model. Both learn the demo model's distribution; the text only provides the contexts.

  train_heads.py --model models/demo.gguf --out DIR --minutes 20
Needs numpy, gguf, tokenizers and torch. A CPU is enough, a GPU better. Writes head.npz and draft.npz: float32, with the
names and rope layout of GGUF files (export_heads.py).
"""

import argparse
import math
import multiprocessing
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import corpus
import numpy_llama

DEPTHS = 4  # consecutive guesses that the head is trained for
DRAFT = {"dim": 128, "n_layers": 2, "n_heads": 2, "n_kv_heads": 1, "ffn_dim": 384}
LAYER = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")


def norm(x, weight, eps):
    y = x.float()
    return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, angles):  # [batch, heads, time, head_dim]; pairs are neighbours, as in GGUF's llama layout
    cos, sin = angles.cos(), angles.sin()
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


class Layer(nn.Module):
    def __init__(self, weights, n_heads, n_kv_heads, theta, eps):
        super().__init__()
        self.w = nn.ParameterDict({name: nn.Parameter(torch.as_tensor(w)) for name, w in weights.items()})
        self.n_heads, self.n_kv_heads, self.eps = n_heads, n_kv_heads, eps
        self.head_dim = weights["attn_q"].shape[0] // n_heads
        inverse = theta ** (-torch.arange(0, self.head_dim, 2).float() / self.head_dim)
        self.register_buffer("inverse", inverse, persistent=False)

    def forward(self, x, first=0, before=()):
        """Computes the rows at positions first, first + 1, ... Without `before`, each row sees itself and earlier rows.
        With `before`, row i sees rows 0 to i of before[0], row i of its other elements, and itself. -> (x, (keys,
        values))"""
        b, t, _ = x.shape
        normed = norm(x, self.w["attn_norm"], self.eps)
        heads = lambda name, n: F.linear(normed, self.w[name]).view(b, t, n, self.head_dim).transpose(1, 2)
        angles = torch.arange(first, first + t, device=x.device)[:, None] * self.inverse
        q, k = rotate(heads("attn_q", self.n_heads), angles), rotate(heads("attn_k", self.n_kv_heads), angles)
        repeat = self.n_heads // self.n_kv_heads
        k, v = k.repeat_interleave(repeat, 1), heads("attn_v", self.n_kv_heads).repeat_interleave(repeat, 1)
        entries = [*before, (k, v)]
        y = self.attend(q, entries) if before else F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        x = x + F.linear(y.transpose(1, 2).reshape(b, t, -1), self.w["attn_output"]).float()
        h = norm(x, self.w["ffn_norm"], self.eps)
        gated = F.silu(F.linear(h, self.w["ffn_gate"])) * F.linear(h, self.w["ffn_up"])
        return x + F.linear(gated, self.w["ffn_down"]).float(), (k, v)

    def attend(self, q, entries):
        t = q.shape[2]
        scores = q @ entries[0][0].transpose(-1, -2) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool, device=q.device).triu(1), -math.inf)
        single = [(q * key).sum(-1, keepdim=True) / math.sqrt(self.head_dim) for key, _ in entries[1:]]
        weights = torch.cat([scores, *single], -1).softmax(-1)
        y = weights[..., :t] @ entries[0][1]
        for i, (_, value) in enumerate(entries[1:]):
            y = y + weights[..., t + i, None] * value
        return y


class Model:
    """The demo model, with frozen weights."""

    def __init__(self, path, device):
        self.meta, tensors = numpy_llama.read(path)
        self.t = {name: torch.from_numpy(w).to(device) for name, w in tensors.items()}
        self.eps = self.meta["llama.attention.layer_norm_rms_epsilon"]
        n_layers = self.meta["llama.block_count"] - self.meta.get("llama.nextn_predict_layers", 0)
        self.layers = [self.layer(i) for i in range(n_layers)]

    def layer(self, i):
        weights = {name: self.t[f"blk.{i}.{name}.weight"].clone() for name in LAYER}
        return Layer(weights, self.meta["llama.attention.head_count"], self.meta["llama.attention.head_count_kv"],
                     self.meta["llama.rope.freq_base"], self.eps).to(self.t["output_norm.weight"].device)

    @torch.no_grad()
    def hidden(self, ids):  # after the final norm
        x = self.t["token_embd.weight"][ids]
        for layer in self.layers:
            x, _ = layer(x)
        return norm(x, self.t["output_norm.weight"], self.eps)


class Head(nn.Module):
    def __init__(self, model):
        super().__init__()
        dim = model.t["output_norm.weight"].shape[0]
        self.layer = model.layer(len(model.layers) - 1)
        self.project = nn.Parameter(torch.cat([0.5 * torch.eye(dim), 0.5 * torch.eye(dim)], 1))
        self.token_norm, self.hidden_norm = (nn.Parameter(torch.ones(dim)) for _ in range(2))
        self.final_norm = nn.Parameter(model.t["output_norm.weight"].clone())
        self.eps = model.eps

    def forward(self, hidden, embedded, depth, before):
        pair = torch.cat([norm(embedded, self.token_norm, self.eps), norm(hidden, self.hidden_norm, self.eps)], -1)
        x, entry = self.layer(F.linear(pair, self.project).float(), depth, before)
        return x, norm(x, self.final_norm, self.eps), entry

    def tensors(self):
        return {f"{name}.weight": w for name, w in self.layer.w.items()} | {
            "nextn.eh_proj.weight": self.project, "nextn.enorm.weight": self.token_norm,
            "nextn.hnorm.weight": self.hidden_norm, "nextn.shared_head_norm.weight": self.final_norm}


class Draft(nn.Module):
    def __init__(self, model):
        super().__init__()
        c, self.eps = DRAFT, model.eps
        head_dim = c["dim"] // c["n_heads"]
        rows = {"attn_q": c["dim"], "attn_k": c["n_kv_heads"] * head_dim, "attn_v": c["n_kv_heads"] * head_dim,
                "attn_output": c["dim"], "ffn_gate": c["ffn_dim"], "ffn_up": c["ffn_dim"], "ffn_down": c["dim"]}
        weight = lambda name: (torch.ones(c["dim"]) if name.endswith("norm") else
                               0.02 * torch.randn(rows[name], c["ffn_dim"] if name == "ffn_down" else c["dim"]))
        self.layers = nn.ModuleList(Layer({name: weight(name) for name in LAYER}, c["n_heads"], c["n_kv_heads"],
                                          model.meta["llama.rope.freq_base"], self.eps) for _ in range(c["n_layers"]))
        self.embedding = nn.Parameter(0.02 * torch.randn(model.t["token_embd.weight"].shape[0], c["dim"]))
        self.final_norm = nn.Parameter(torch.ones(c["dim"]))

    def forward(self, ids):
        x = self.embedding[ids]
        for layer in self.layers:
            x, _ = layer(x)
        return F.linear(norm(x, self.final_norm, self.eps), self.embedding)

    def tensors(self):
        named = {"token_embd.weight": self.embedding, "output_norm.weight": self.final_norm}
        for i, layer in enumerate(self.layers):
            named |= {f"blk.{i}.{name}.weight": w for name, w in layer.w.items()}
        return named


def token_stream(meta, seed, index):
    tokenizer = numpy_llama.tokenizer_of(meta)
    end = tokenizer.token_to_id(corpus.EOT)
    for text in corpus.documents(seed, index):
        yield tokenizer.encode(text).ids + [end]


def batches(meta, rows, context, seed, index=0):
    """Yields [rows, context] token ids. Each row starts at the start of a document, as prompts do."""
    stream, batch = token_stream(meta, seed, index), []
    while True:
        ids = []
        while len(ids) < context:
            ids += next(stream)
        batch.append(ids[:context])
        if len(batch) == rows:
            yield torch.tensor(batch)
            batch = []


def put_batches(queue, *args):
    torch.set_num_threads(1)
    for ids in batches(*args):
        queue.put(ids.numpy())


def batches_of(meta, rows, context, seed, n_workers):
    """As batches(), from n_workers processes; 0: from this process."""
    if n_workers == 0:
        yield from batches(meta, rows, context, seed)
    queue = multiprocessing.Queue(4 * n_workers)
    for i in range(n_workers):
        multiprocessing.Process(target=put_batches, args=(queue, meta, rows, context, seed, i), daemon=True).start()
    while True:
        yield torch.from_numpy(queue.get())


def losses(model, head, draft, ids):
    """Cross entropies to the demo model's distribution, and how often the likeliest tokens agree: for each of the
    head's consecutive guesses, then for the draft model."""
    t = ids.shape[1] - DEPTHS
    hidden = model.hidden(ids)
    logits = F.linear(hidden, model.t["token_embd.weight"]).float()
    wanted, best = logits.softmax(-1), logits.argmax(-1)
    cross = lambda guess, at: -(wanted[:, at : at + t] * guess.float().log_softmax(-1)).sum(-1).mean()
    equal = lambda guess, at: (guess.argmax(-1) == best[:, at : at + t]).float()
    total, shares, right = 0.0, [], 1.0
    state, before = hidden[:, :t], []
    for depth in range(DEPTHS):
        embedded = model.t["token_embd.weight"][ids[:, depth + 1 : depth + 1 + t]]
        state, normed, entry = head(state, embedded, depth, before)
        before.append(entry)
        guess = F.linear(normed, model.t["token_embd.weight"])
        total = total + cross(guess, depth + 1) * 0.85**depth
        right = right * equal(guess, depth + 1)
        shares.append(right.mean().item())
    guess = draft(ids[:, :t])
    return total, cross(guess, 0), [*shares, equal(guess, 0).mean().item()]


def save(out, head, draft):
    for name, module in (("head", head), ("draft", draft)):
        np.savez(out / f"{name}.npz", **{k: w.detach().float().cpu().numpy() for k, w in module.tensors().items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=20, help="how long to train; the learning rate falls along this time")
    parser.add_argument("--rows", type=int, default=8, help="rows of a batch")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1.5e-3, help="of the head; the draft model's is twice as high")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--workers", type=int, default=0, help="processes that make text; for a GPU, one for each core")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Model(args.model, device)
    head, draft = Head(model).to(device), Draft(model).to(device)
    parameters = [*head.parameters(), *draft.parameters()]
    groups = [{"params": [*head.parameters()], "peak": args.lr}, {"params": [*draft.parameters()], "peak": 2 * args.lr}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.01, fused=device == "cuda")
    began, n_tokens = time.time(), 0
    for step, ids in enumerate(batches_of(model.meta, args.rows, args.context, args.seed, args.workers)):
        ids = ids.to(device)
        progress = (time.time() - began) / (60 * args.minutes)
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * min((step + 1) / 100, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        with torch.autocast(device, torch.bfloat16):
            of_head, of_draft, shares = losses(model, head, draft, ids)
        (of_head + of_draft).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        n_tokens += ids.numel()
        if step % 50 == 0:
            save(args.out, head, draft)
            print(f"{step} {n_tokens / 1e6:.2f}M tokens, {time.time() - began:.0f} s, losses {of_head.item():.3f} "
                  f"{of_draft.item():.3f}, equal: {' '.join(f'{s:.3f}' for s in shares)}", flush=True)
    save(args.out, head, draft)


if __name__ == "__main__":
    main()
