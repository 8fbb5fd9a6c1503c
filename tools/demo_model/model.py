"""The demo model: a small Llama with Hugging Face's parameter names and rope layout (halves), tied embeddings.

Every row length is a multiple of 256, so that the model can be quantised to any GGUF format.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    vocab_size: int = 4096
    dim: int = 256
    n_layers: int = 12
    n_heads: int = 4
    n_kv_heads: int = 2
    ffn_dim: int = 768
    context: int = 2048
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self):
        return self.dim // self.n_heads


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.dim))
        self.eps = config.norm_eps

    def forward(self, x):  # [batch, time, dim]
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


def rotate(x, cos, sin):  # [batch, heads, time, head_dim]; pairs are (i, i + head_dim/2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def cos_sin(config):  # [context, head_dim / 2] both
    inverse = config.rope_theta ** (-torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
    angles = torch.arange(config.context, dtype=torch.float64)[:, None] * inverse
    return angles.cos().float(), angles.sin().float()


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.dim, c.n_heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.dim, c.n_kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.dim, c.n_kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.n_heads * c.head_dim, c.dim, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = (
            p(x).view(b, t, -1, self.c.head_dim).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        repeat = self.c.n_heads // self.c.n_kv_heads
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.dim, c.ffn_dim, bias=False)
        self.up_proj = nn.Linear(c.dim, c.ffn_dim, bias=False)
        self.down_proj = nn.Linear(c.ffn_dim, c.dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm, self.self_attn = Norm(c), Attention(c)
        self.post_attention_layernorm, self.mlp = Norm(c), Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(config.vocab_size, config.dim),
                "layers": nn.ModuleList(Layer(config) for _ in range(config.n_layers)),
                "norm": Norm(config),
            }
        )
        cos, sin = cos_sin(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / (2 * config.n_layers) ** 0.5 if residual else 0.02)

    def forward(self, ids, targets=None):  # [batch, time]
        x = self.model["embed_tokens"](ids)
        t = ids.shape[1]
        cos, sin = self.cos[:t], self.sin[:t]
        for layer in self.model["layers"]:
            x = layer(x, cos, sin)
        logits = F.linear(self.model["norm"](x), self.model["embed_tokens"].weight)  # [batch, time, vocab]
        if targets is None:
            return logits
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))
