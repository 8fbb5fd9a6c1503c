"""The vision model: a small SmolVLM (Idefics 3) with Hugging Face's parameter names.

A SigLIP tower reads patches of the picture. The connector joins squares of 2 x 2 patches into one vector, which replaces
an <image> token. A Llama answers. Row lengths are multiples of 32, so that blocks of 32 fit.
"""

import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.append(str(pathlib.Path(__file__).parent.parent / "demo_model"))
from model import Config as TextConfig, Layer, Norm, cos_sin  # noqa: E402

SIDE, PATCH, SCALE = 128, 8, 2
GRID = SIDE // PATCH
IMAGE_TOKENS = (GRID // SCALE) ** 2
TEXT = TextConfig(vocab_size=512, dim=192, n_layers=5, n_heads=6, n_kv_heads=2, ffn_dim=512, context=1024)
TOWER = dict(dim=160, n_layers=5, n_heads=5, ffn_dim=640, norm_eps=1e-6)


class TowerAttention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):  # [pictures, patches, dim]
        n, t, dim = x.shape
        q, k, v = (p(x).view(n, t, self.n_heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, dim))


class TowerLayer(nn.Module):
    def __init__(self, dim, n_heads, ffn_dim, norm_eps, **_):
        super().__init__()
        self.layer_norm1, self.self_attn = nn.LayerNorm(dim, norm_eps), TowerAttention(dim, n_heads)
        self.layer_norm2 = nn.LayerNorm(dim, norm_eps)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(dim, ffn_dim), "fc2": nn.Linear(ffn_dim, dim)})

    def forward(self, x):
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.layer_norm2(x)), approximate="tanh"))


class Tower(nn.Module):
    def __init__(self, dim, n_layers, norm_eps, **rest):
        super().__init__()
        self.embeddings = nn.ModuleDict({"patch_embedding": nn.Conv2d(3, dim, PATCH, PATCH),
                                         "position_embedding": nn.Embedding(GRID * GRID, dim)})
        layers = nn.ModuleList(TowerLayer(dim=dim, norm_eps=norm_eps, **rest) for _ in range(n_layers))
        self.encoder = nn.ModuleDict({"layers": layers})
        self.post_layernorm = nn.LayerNorm(dim, norm_eps)

    def forward(self, pixels):  # [pictures, 3, SIDE, SIDE] -> [pictures, GRID^2, dim]
        x = self.embeddings["patch_embedding"](pixels).flatten(2).transpose(1, 2)
        x = x + self.embeddings["position_embedding"].weight
        for layer in self.encoder["layers"]:
            x = layer(x)
        return self.post_layernorm(x)


def join_squares(x):
    """[pictures, GRID^2, dim] -> [pictures, IMAGE_TOKENS, SCALE^2 * dim]"""
    n, _, dim = x.shape
    side = GRID // SCALE
    return x.view(n, side, SCALE, side, SCALE, dim).transpose(2, 3).reshape(n, side * side, -1)


class VisionModel(nn.Module):
    def __init__(self):
        super().__init__()
        text = nn.ModuleDict({"embed_tokens": nn.Embedding(TEXT.vocab_size, TEXT.dim),
                              "layers": nn.ModuleList(Layer(TEXT) for _ in range(TEXT.n_layers)), "norm": Norm(TEXT)})
        proj = nn.ModuleDict({"proj": nn.Linear(SCALE * SCALE * TOWER["dim"], TEXT.dim, bias=False)})
        self.model = nn.ModuleDict({"vision_model": Tower(**TOWER), "text_model": text,
                                    "connector": nn.ModuleDict({"modality_projection": proj})})
        for name, p in self.named_parameters():
            if p.ndim > 1:
                last = name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight", "fc2.weight"))
                nn.init.normal_(p, std=0.006 if last else 0.02)
        cos, sin = cos_sin(TEXT)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, pixels, ids, image_id):
        """pixels: uint8 [rows, SIDE, SIDE, 3]; ids [rows, time] -> logits [rows, time, vocab]. A row may show its picture
        several times, or never."""
        x = pixels.permute(0, 3, 1, 2).float() / 127.5 - 1
        vectors = self.model["connector"]["modality_projection"]["proj"](join_squares(self.model["vision_model"](x)))
        shown = ids == image_id
        index = ((shown.cumsum(1) - 1) % IMAGE_TOKENS).unsqueeze(-1).expand(-1, -1, TEXT.dim)
        text = self.model["text_model"]
        y = torch.where(shown.unsqueeze(-1), vectors.gather(1, index), text["embed_tokens"](ids).to(vectors.dtype))
        t = ids.shape[1]
        for layer in text["layers"]:
            y = layer(y, self.cos[:t], self.sin[:t])
        return F.linear(text["norm"](y), text["embed_tokens"].weight)
