"""A Llama read from GGUF and run in NumPy: the oracle for the demo model, sharing no code with ingot or with the training.

Weights are dequantised by the gguf package, arithmetic is float32, rope rotates neighbouring pairs as in GGUF's llama
layout.
"""

import gguf
import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read(path):
    """Returns ({key: value}, {tensor name: float32 array})."""
    reader = gguf.GGUFReader(path)
    meta = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
    return meta, tensors


def tokenizer_of(meta):
    """A Hugging Face tokenizer from the file's own keys."""
    if (meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"]) != ("gpt2", "qwen2"):
        raise ValueError("not a byte-level BPE tokenizer with the qwen2 split")
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    vocab = {t: i for i, (t, kind) in enumerate(zip(tokens, kinds)) if kind == gguf.TokenType.NORMAL}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    for i, (t, kind) in enumerate(zip(tokens, kinds)):
        if kind != gguf.TokenType.NORMAL:
            tokenizer.add_tokens([AddedToken(t, special=kind == gguf.TokenType.CONTROL, normalized=False)])
            if tokenizer.token_to_id(t) != i:
                raise ValueError(f"token {t} has id {i} in the file")
    return tokenizer


class NumpyLlama:
    def __init__(self, meta, tensors):
        self.t = tensors
        self.n_layers = meta["llama.block_count"] - meta.get("llama.nextn_predict_layers", 0)  # the other layers only draft tokens
        self.n_heads, self.n_kv_heads = meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"]
        self.head_dim = meta["llama.embedding_length"] // self.n_heads
        self.eps = np.float32(meta["llama.attention.layer_norm_rms_epsilon"])
        self.inverse = meta["llama.rope.freq_base"] ** (
            -np.arange(0, self.head_dim, 2, dtype=np.float64) / self.head_dim
        )
        self.reset()

    def reset(self):
        self.cache = [None] * self.n_layers  # (k, v) of each layer, [n_kv_heads, time, head_dim]
        self.length = 0

    def _norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.t[name]

    def _rope(self, x, start):  # [time, heads, head_dim]
        angles = (np.arange(start, start + len(x))[:, None] * self.inverse)[:, None]
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        even, odd = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2], out[..., 1::2] = even * cos - odd * sin, even * sin + odd * cos
        return out

    def _attention(self, x, layer):
        n, start = len(x), self.length
        project = lambda which: (x @ self.t[f"blk.{layer}.attn_{which}.weight"].T).reshape(n, -1, self.head_dim)
        q = self._rope(project("q"), start).swapaxes(0, 1)
        k, v = self._rope(project("k"), start).swapaxes(0, 1), project("v").swapaxes(0, 1)
        if self.cache[layer]:
            k, v = (np.concatenate(pair, 1) for pair in zip(self.cache[layer], (k, v)))
        self.cache[layer] = (k, v)
        repeat = self.n_heads // self.n_kv_heads
        scores = (
            q @ np.repeat(k, repeat, 0).swapaxes(1, 2) / np.sqrt(np.float32(self.head_dim))
        )  # [n_heads, n, start + n]
        scores += np.triu(np.full((n, start + n), -np.inf, np.float32), start + 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        y = (weights @ np.repeat(v, repeat, 0)).swapaxes(0, 1).reshape(n, -1)
        return y @ self.t[f"blk.{layer}.attn_output.weight"].T

    def forward(self, ids):
        """Appends the tokens to the sequence and returns their logits, [len(ids), vocab]."""
        x = self.t["token_embd.weight"][np.asarray(ids)]
        for layer in range(self.n_layers):
            x = x + self._attention(self._norm(x, f"blk.{layer}.attn_norm.weight"), layer)
            h = self._norm(x, f"blk.{layer}.ffn_norm.weight")
            gate, up = (h @ self.t[f"blk.{layer}.ffn_{w}.weight"].T for w in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.t[f"blk.{layer}.ffn_down.weight"].T
        self.length += len(x)
        return self._norm(x, "output_norm.weight") @ self.t.get("output.weight", self.t["token_embd.weight"]).T

    def greedy(self, ids, n, stops):
        """Yields (token, margin): the margin is the best logit less the second best."""
        self.reset()
        logits = self.forward(ids)[-1]
        for _ in range(n):
            token = int(logits.argmax())
            second, first = np.partition(logits, -2)[-2:]
            yield token, float(first - second)
            if token in stops:
                return
            logits = self.forward([token])[-1]


def perplexity(model, ids, context):
    """llama.cpp's definition: windows of `context` tokens without overlap; tokens context/2 + 1 .. context - 1 of each
    are scored. Returns (perplexity, mean loss of each window)."""
    means = []
    for i in range(len(ids) // context):
        window = np.asarray(ids[i * context : (i + 1) * context])
        model.reset()
        logits = model.forward(window)[context // 2 : -1].astype(np.float64)
        top = logits.max(-1, keepdims=True)
        log_sum = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
        means.append(float((log_sum - logits[np.arange(len(logits)), window[context // 2 + 1 :]]).mean()))
    return float(np.exp(np.mean(means))), means
