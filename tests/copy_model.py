"""Writes a GGUF model that plays any text: it answers with the last message, byte by byte, then ends the answer.

The model has one layer. Its queries and keys are the same at each position, so with the rotation of positions, a token
attends to the token LAG places before it, and the layer adds that token's embedding many times over. The template puts
the last message so that its first byte is LAG places before the first byte of the answer.

    python3 tests/copy_model.py model.gguf [MARKS]

MARKS: text in a comment of the template, by which ingot chooses the format of calls and reasoning.
"""
import struct
import sys

import numpy as np

LAG = 1024
N_CTX = 32768
DIM, HEADS = 512, 4
ROPE_BASE = 10.0
SPECIAL = ["<|im_start|>", "<|im_end|>"]

TEMPLATE = """{#MARKS#}{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}{{ '<|im_start|>' }}\
{% if m.tool_calls %}{{ m.tool_calls|tojson }}{% endif %}{{ m.content }}{% endfor %}{{ '<|im_end|>' }}\
{% for i in range(PAD - messages[-1].content|length) %}.{% endfor %}{% if add_generation_prompt %}\
{{ '<|im_start|>' }}assistant
OPEN{% endif %}"""


def byte_names():
    """The characters that stand for bytes in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {b: chr(b) for b in plain}
    for n, b in enumerate(b for b in range(256) if b not in names):
        names[b] = chr(256 + n)
    return [names[b] for b in range(256)]


def value(v):
    """A GGUF value: its type and its bytes."""
    if isinstance(v, bool):
        return 7, struct.pack("<B", v)
    if isinstance(v, int):
        return 4, struct.pack("<I", v)
    if isinstance(v, float):
        return 6, struct.pack("<f", v)
    if isinstance(v, str):
        return 8, struct.pack("<Q", len(v.encode())) + v.encode()
    kind = value(v[0])[0] if v else 8
    return 9, struct.pack("<IQ", kind, len(v)) + b"".join(value(x)[1] for x in v)


def write_gguf(path, metadata, tensors):
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    for key, v in metadata.items():
        kind, data = value(v)
        head += value(key)[1] + struct.pack("<I", kind) + data
    at = 0
    for name, t in tensors.items():
        head += value(name)[1] + struct.pack(f"<I{t.ndim}QIQ", t.ndim, *reversed(t.shape), 0, at)
        at += t.nbytes + -t.nbytes % 32
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32))
        for t in tensors.values():
            file.write(t.tobytes() + b"\0" * (-t.nbytes % 32))


def weights(n_vocab):
    rng = np.random.default_rng(1)
    embedding = rng.choice([-1.0, 1.0], (n_vocab, DIM))
    head_dim = DIM // HEADS
    pairs = np.arange(head_dim // 2)
    angle = -LAG * ROPE_BASE ** (-2.0 * pairs / head_dim)
    query, key = np.zeros((HEADS, head_dim)), np.zeros((HEADS, head_dim))
    # The rotation pairs value i with value i + head_dim / 2.
    query[:, : head_dim // 2], query[:, head_dim // 2 :] = np.cos(angle), np.sin(angle)
    key[:, : head_dim // 2] = 1.0
    eye, zero = np.eye(DIM), np.zeros((DIM, DIM))
    return {
        "token_embd.weight": embedding,
        "output_norm.weight": np.ones(DIM),
        "blk.0.attn_norm.weight": np.ones(DIM),
        "blk.0.attn_q.weight": zero,
        "blk.0.attn_q.bias": 8 * query.reshape(-1),
        "blk.0.attn_k.weight": zero,
        "blk.0.attn_k.bias": 8 * key.reshape(-1),
        "blk.0.attn_v.weight": eye,
        "blk.0.attn_v.bias": np.zeros(DIM),
        "blk.0.attn_output.weight": 16 * eye,
        "blk.0.ffn_norm.weight": np.ones(DIM),
        "blk.0.ffn_gate.weight": np.zeros((32, DIM)),
        "blk.0.ffn_up.weight": np.zeros((32, DIM)),
        "blk.0.ffn_down.weight": np.zeros((DIM, 32)),
    }


def make_copy_model(path, marks="", opening=""):
    """opening: text of the generation prompt after its header, for example "<think>\\n"."""
    tokens = byte_names() + SPECIAL
    # From the first byte of the message to the token before the answer: the message, its end, the padding, the header.
    header = 1 + len("assistant\n") + len(opening.encode())
    template = TEMPLATE.replace("MARKS", marks).replace("PAD", str(LAG - header)).replace("OPEN", opening)
    metadata = {
        "general.architecture": "qwen2",
        "general.name": "copy",
        "qwen2.block_count": 1,
        "qwen2.context_length": N_CTX,
        "qwen2.embedding_length": DIM,
        "qwen2.feed_forward_length": 32,
        "qwen2.attention.head_count": HEADS,
        "qwen2.attention.head_count_kv": HEADS,
        "qwen2.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen2.rope.freq_base": ROPE_BASE,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 256 + [3] * len(SPECIAL),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": 257,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": template,
    }
    write_gguf(path, metadata, {k: np.ascontiguousarray(v, np.float32) for k, v in weights(len(tokens)).items()})


if __name__ == "__main__":
    make_copy_model(sys.argv[1], *sys.argv[2:3])
