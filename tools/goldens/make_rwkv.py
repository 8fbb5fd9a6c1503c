#!/usr/bin/env python3
"""Makes the tiny RWKV-7 model of tests/data/models, its directory in tests/data/hf, and the results of the package rwkv,
the reference of RWKV's author.

The files are those of make_models.py. The GGUF file has the layout of llama.cpp's converter, with the tokenizer of
RWKV's World models. The directory has the names and keys of the package fla, and the same weights. Heads have 8 columns,
and norms an eps of 8e-5, so that the eps of the heads' norms is 64e-5 in both: in GGUF files as a constant, and in
directories as the product of the two.

    pip install -r tools/goldens/requirements.txt
    python tools/goldens/make_rwkv.py [-o tests/data/models]
"""
import functools
import json
import os
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import version

os.environ |= {"RWKV_V7_ON": "1", "RWKV_JIT_ON": "0", "RWKV_CUDA_ON": "0", "PYTORCH_JIT": "0"}
import gguf
import numpy as np
import rwkv.model
import safetensors.torch
import torch
from gguf import GGMLQuantizationType as QT
from rwkv.rwkv_tokenizer import TRIE_TOKENIZER

from makers import make_all, write_sidecar

N_GREEDY, N_CANDIDATES, MIN_MARGIN = 64, 400, 1e-3
ARCH = "rwkv7"
NAMES = ("r", "w", "k", "v", "a", "g")  # of the mixes, in the order of GGUF files
MORE_TOKENS = [b"\n\n", b" the", b" t", b"\xc3\xa9", b"e\xcc\x81", b"''", b"\\n", b"User: ", b"Use"]
TEXTS = ["", "User: hello\n\nAssistant:", "the cat is on the mat", "caf\u00e9 e\u0301 \u4e2d\u6587 \U0001f600", "'' \\n \t\r\n\n\n\x00\x7f", "Us", "Use", "User", "User:",
         " t", " th", " the", " them", "\n", "\n\n", "\n\n\n", "\\", "\\\\n", "'", "'a'", "\u00e9", "\u00c3", "e\u0300", "e\u0301\u0301", "[PAD300]"]


@dataclass
class Spec:
    name: str
    n_tokens: int = 21
    n_layers: int = 2
    dim: int = 16
    head: int = 8
    ffn: int = 24
    eps: float = 8e-5
    ranks: dict = field(default_factory=lambda: {"w": 5, "a": 4, "v": 3, "g": 6})

    @property
    def vocab(self):
        return 257 + len(MORE_TOKENS)


def draw(spec, rng):
    """Weights by the names of RWKV's own checkpoints. Matrices hold what F16 can store."""
    z = {}

    def matrix(name, rows, cols, std):
        z[name] = torch.from_numpy((std * rng.standard_normal((rows, cols))).astype(np.float16).astype(np.float32))

    def vector(name, mean, std, *shape):
        z[name] = torch.from_numpy((mean + std * rng.standard_normal(shape or spec.dim)).astype(np.float32))

    def norm(name):
        vector(name + ".weight", 1, 0.2), vector(name + ".bias", 0, 0.2)

    d = spec.dim
    matrix("emb.weight", spec.vocab, d, 1)
    matrix("head.weight", spec.vocab, d, 2 * d**-0.5)
    norm("blocks.0.ln0"), norm("ln_out")
    for i in range(spec.n_layers):
        att, ffn = f"blocks.{i}.att.", f"blocks.{i}.ffn."
        norm(f"blocks.{i}.ln1"), norm(f"blocks.{i}.ln2"), norm(att + "ln_x")
        for name in NAMES:
            z[att + "x_" + name] = torch.from_numpy(rng.random((1, 1, d)).astype(np.float32))
        for name, rank in spec.ranks.items():
            if name == "v" and i == 0:
                continue
            matrix(att + name + "1", d, rank, 2 * d**-0.5)
            matrix(att + name + "2", rank, d, 2 * rank**-0.5)
            if name != "g":
                vector(att + name + "0", 0, 1)
        vector(att + "k_k", 0.7, 0.2), vector(att + "k_a", 1, 0.2), vector(att + "r_k", 0, 0.3, d // spec.head, spec.head)
        for name in ("receptance", "key", "value", "output"):
            matrix(att + name + ".weight", d, d, 1.5 * d**-0.5)
        z[ffn + "x_k"] = torch.from_numpy(rng.random((1, 1, d)).astype(np.float32))
        matrix(ffn + "key.weight", spec.ffn, d, 1.5 * d**-0.5)
        matrix(ffn + "value.weight", d, spec.ffn, 1.5 * spec.ffn**-0.5)
    return z


def gguf_tensors(spec, z):
    """[(name, array)]: matrices in F16, vectors in F32."""
    tensors = []

    def add(name, w):
        tensors.append((name, w.numpy().astype(np.float16 if w.dim() == 2 else np.float32)))

    add("token_embd.weight", z["emb.weight"]), add("output.weight", z["head.weight"])
    for kind in ("weight", "bias"):
        add(f"token_embd_norm.{kind}", z[f"blocks.0.ln0.{kind}"]), add(f"output_norm.{kind}", z[f"ln_out.{kind}"])
    for i in range(spec.n_layers):
        own, att, ffn = f"blk.{i}.", f"blocks.{i}.att.", f"blocks.{i}.ffn."
        for kind in ("weight", "bias"):
            add(own + f"attn_norm.{kind}", z[f"blocks.{i}.ln1.{kind}"]), add(own + f"attn_norm_2.{kind}", z[f"blocks.{i}.ln2.{kind}"])
            add(own + f"time_mix_ln.{kind}", z[att + f"ln_x.{kind}"])
        mixes = torch.stack([z[att + "x_" + name] for name in NAMES])
        tensors.append((own + "time_mix_lerp_fused.weight", mixes.numpy()))  # [6, 1, 1, dim]
        for name in spec.ranks:
            source = "a" if name == "v" and i == 0 else name  # the converter's stand-in, which nothing reads
            for part in "12":
                add(own + f"time_mix_{name}{part}.weight", z[att + source + part].T.contiguous())
            if name != "g":
                add(own + f"time_mix_{name}0.weight", z[att + source + "0"])
        for name in ("k_k", "k_a", "r_k"):
            add(own + f"time_mix_{name}.weight", z[att + name].flatten())
        for name in ("receptance", "key", "value", "output"):
            add(own + f"time_mix_{name}.weight", z[att + name + ".weight"])
        add(own + "channel_mix_lerp_k.weight", z[ffn + "x_k"].flatten())
        add(own + "channel_mix_key.weight", z[ffn + "key.weight"]), add(own + "channel_mix_value.weight", z[ffn + "value.weight"])
    return tensors


def tokens():
    """The bytes of the tokens from 1 on."""
    return [bytes([b]) for b in range(256)] + MORE_TOKENS


def write_gguf(path, spec, z):
    writer = gguf.GGUFWriter(path, ARCH)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(f"golden {spec.name}")
    writer.add_context_length(1048576)
    writer.add_embedding_length(spec.dim)
    writer.add_block_count(spec.n_layers)
    writer.add_layer_norm_eps(spec.eps)
    writer.add_wkv_head_size(spec.head)
    writer.add_decay_lora_rank(spec.ranks["w"])
    writer.add_iclr_lora_rank(spec.ranks["a"])
    writer.add_value_residual_mix_lora_rank(spec.ranks["v"])
    writer.add_gate_lora_rank(spec.ranks["g"])
    writer.add_feed_forward_length(spec.ffn)
    writer.add_head_count(0)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list([b"<s>"] + [repr(token)[2:-1].encode() for token in tokens()])
    writer.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (spec.vocab - 1))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_eot_token_id(tokens().index(b"\n\n") + 1)
    writer.add_chat_template("rwkv-world")
    for name, data in gguf_tensors(spec, z):
        writer.add_tensor(name, data, raw_dtype=QT.F16 if data.dtype == np.float16 else QT.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def vocabulary_text():
    def literal(token):
        try:
            return repr(token.decode())
        except UnicodeDecodeError:
            return repr(token)
    return "".join(f"{i + 1} {literal(token)} {len(token)}\n" for i, token in enumerate(tokens()))


FLA = {"receptance.weight": "r_proj.weight", "key.weight": "k_proj.weight", "value.weight": "v_proj.weight", "output.weight": "o_proj.weight",
       "ln_x.weight": "g_norm.weight", "ln_x.bias": "g_norm.bias"}


def write_hf(folder, spec, z):
    """The directory that fla's converter writes."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {"model.embeddings.weight": z["emb.weight"], "lm_head.weight": z["head.weight"]}
    for kind in ("weight", "bias"):
        state[f"model.norm.{kind}"] = z[f"ln_out.{kind}"]
        state[f"model.layers.0.pre_norm.{kind}"] = z[f"blocks.0.ln0.{kind}"]
    for name, w in z.items():
        if not name.startswith("blocks.") or ".ln0." in name:
            continue
        layer, rest = name.split(".", 2)[1:]
        own = f"model.layers.{layer}."
        if rest.startswith(("ln1.", "ln2.")):
            state[own + rest.replace("ln1", "attn_norm").replace("ln2", "ffn_norm")] = w
        elif rest.startswith("ffn."):
            state[own + rest] = w.flatten() if rest.endswith("x_k") else w
        elif (part := rest.removeprefix("att."))[0] in spec.ranks and part[1:] in ("0", "1", "2"):
            place = {"0": "2.bias", "1": "0.weight", "2": "2.weight"}[part[1:]]
            state[own + f"attn.{part[0]}_lora.lora.{place}"] = w if part[1:] == "0" else w.T
        else:
            state[own + "attn." + FLA.get(part, part)] = w
    state = {k: (v.half() if v.dim() == 2 and not k.endswith("r_k") else v).contiguous().clone() for k, v in state.items()}
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config = {"architectures": ["RWKV7ForCausalLM"], "model_type": "rwkv7", "hidden_size": spec.dim, "head_dim": spec.head, "num_hidden_layers": spec.n_layers,
              "intermediate_size": spec.ffn, "norm_eps": spec.eps, "norm_first": True, "norm_bias": True, "hidden_act": "sqrelu", "attn": None,
              "value_dim": [spec.dim] * spec.n_layers, "decay_low_rank_dim": spec.ranks["w"], "a_low_rank_dim": spec.ranks["a"],
              "v_low_rank_dim": spec.ranks["v"], "gate_low_rank_dim": spec.ranks["g"], "max_position_embeddings": 2048, "vocab_size": spec.vocab,
              "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "model.safetensors").chmod(0o644)
    (folder / "rwkv_vocab_v20230424.txt").write_text(vocabulary_text(), encoding="utf-8")


@torch.inference_mode()
def greedy_of(model, prompt):
    """-> (logits [n, vocab], greedy tokens, the smallest lead of a greedy token)."""
    logits, state = model.forward(prompt, None, full_output=True)
    last, greedy, margins = logits[-1], [], []
    for _ in range(N_GREEDY):
        top = last.topk(2)
        greedy.append(int(top.indices[0]))
        margins.append(float(top.values[0] - top.values[1]))
        last, state = model.forward(greedy[-1], state)
    return logits, greedy, min(margins)


def make_expected(spec, z, rng):
    normed = functools.partial(torch.nn.functional.layer_norm, eps=spec.eps)
    rwkv.model.F = type("F", (), {"layer_norm": staticmethod(normed), "relu": staticmethod(torch.relu)})
    with tempfile.TemporaryDirectory() as folder:
        torch.save(z, f"{folder}/model.pth")
        model = rwkv.model.RWKV(f"{folder}/model", "cpu fp32")
    best = None
    for prompt in rng.integers(1, spec.vocab, (N_CANDIDATES, spec.n_tokens)).tolist():
        logits, greedy, margin = greedy_of(model, prompt)
        ends = {0, tokens().index(b"\n\n") + 1}
        if not ends & set(greedy) and len(set(greedy)) >= 8 and (best is None or margin > best[3]):
            best = prompt, logits, greedy, margin
    assert best and best[3] > MIN_MARGIN, best and best[3]
    return best


def tokenized():
    """The vocabulary as GGUF files have it, and the ids of TEXTS by RWKV's own tokenizer."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(vocabulary_text())
        file.flush()
        tokenizer = TRIE_TOKENIZER(file.name)
    spec = {"model": "rwkv", "pre": "", "tokens": ["<s>"] + [repr(token)[2:-1] for token in tokens()], "token_types": [3] + [1] * len(tokens())}
    return {"spec": spec, "texts": TEXTS, "ids": [tokenizer.encode(text) for text in TEXTS]}


def make_golden(spec, seed, out):
    rng = np.random.default_rng(seed)
    z = draw(spec, rng)
    prompt, logits, greedy, margin = make_expected(spec, z, rng)
    write_gguf(out / f"{spec.name}.gguf", spec, z)
    write_hf(out.parent / "hf" / spec.name, spec, z)
    np.save(out / f"{spec.name}.npy", logits.numpy())
    write_sidecar(out / f"{spec.name}.json", {
        "name": spec.name, "file": f"{spec.name}.gguf", "arch": ARCH, "types": {"*": "F16"}, "logits": f"{spec.name}.npy", "tokens": prompt,
        "greedy": greedy, "greedy_margin": round(margin, 5), "seed": seed, "torch": torch.__version__.split("+")[0], "rwkv": version("rwkv"),
        "gguf": version("gguf"), "numpy": np.__version__})
    path = out.parent / "tokenizers" / "rwkv.json"
    path.write_text(json.dumps(tokenized(), separators=(",", ":")) + "\n")
    print(f"{spec.name}: logits std {logits.std():.2f}, greedy margin {margin:.4f}")


if __name__ == "__main__":
    make_all(__doc__, [Spec("rwkv7")], make_golden, 7000, "tests/data/models")
