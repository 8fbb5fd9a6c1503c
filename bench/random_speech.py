#!/usr/bin/env python3
"""Writes a speech model with random weights in whisper.cpp's form (ggml-*.bin), and a recording of voice-like sound, for speed alone.

    bench/random_speech.py large-v3-turbo ggml-random.bin
    bench/random_speech.py --sound 600 sound.wav        # ten minutes

The model writes random tokens, so a window has as many tokens as the model may write (224). Matrices are F16, normal with a deviation of
1 / sqrt(columns), and share their data. The sound has pitch, harmonics and pauses, so that it is taken for a voice.
"""
import argparse
import array
import math
import pathlib
import random
import struct
import wave

SHAPES = {  # mels, dim, heads, layers of the encoder and of the decoder, tokens
    "tiny": (80, 384, 6, 4, 4, 51865), "base": (80, 512, 8, 6, 6, 51865), "small": (80, 768, 12, 12, 12, 51865),
    "large-v3-turbo": (128, 1280, 20, 32, 4, 51866),
}
ROWS, CONTEXT, TEXT_TOKENS, BINS = 1500, 448, 50257, 201
RATE = 16000
F32, F16 = 0, 1


def layer_tensors(prefix, dim, crosses):
    for attention in ("attn", "cross_attn") if crosses else ("attn",):
        yield f"{prefix}.{attention}_ln", [dim], True
        for part in "query", "key", "value", "out":
            yield f"{prefix}.{attention}.{part}", [dim, dim], part != "key"
    yield f"{prefix}.mlp_ln", [dim], True
    yield f"{prefix}.mlp.0", [dim, 4 * dim], True
    yield f"{prefix}.mlp.2", [4 * dim, dim], True


def modules(shape):
    """Yields (module, dims of its weight with the length of a row first, whether it has a bias)."""
    mels, dim, _, encoder, decoder, tokens = SHAPES[shape]
    yield "encoder.conv1", [3, mels, dim], True
    yield "encoder.conv2", [3, dim, dim], True
    yield "encoder.ln_post", [dim], True
    yield "decoder.token_embedding", [dim, tokens], False
    yield "decoder.ln", [dim], True
    for i in range(encoder):
        yield from layer_tensors(f"encoder.blocks.{i}", dim, False)
    for i in range(decoder):
        yield from layer_tensors(f"decoder.blocks.{i}", dim, True)


def tensors(shape):
    """Yields (name, dims, type) of each tensor."""
    dim = SHAPES[shape][1]
    yield "encoder.positional_embedding", [dim, ROWS], F32
    yield "decoder.positional_embedding", [dim, CONTEXT], F32
    for module, dims, has_bias in modules(shape):
        yield module + ".weight", dims, F16 if len(dims) > 1 else F32
        if has_bias:
            yield module + ".bias", [1, dims[-1]] if len(dims) == 3 else [dims[-1]], F32


def text_tokens():
    """The bytes, then pairs of bytes."""
    singles = [bytes([i]) for i in range(256)]
    pairs = [bytes([i, j]) for i in range(256) for j in range(256)]
    return singles + pairs[: TEXT_TOKENS - 256]


def write_model(shape, path):
    mels, dim, heads, encoder, decoder, tokens = SHAPES[shape]
    noise = array.array("f", (random.gauss(0, 1) for _ in range(1 << 16)))
    made = {}

    def data_of(name, n, kind, cols):
        if kind == F32:
            return struct.pack("<f", 1.0 if name.endswith("weight") else 0.01) * n
        if cols not in made:
            made[cols] = struct.pack(f"<{len(noise)}e", *(x * cols ** -0.5 for x in noise)) * 16
        return made[cols]

    with open(path, "wb") as out:
        out.write(struct.pack("<I11i", 0x67676D6C, tokens, ROWS, dim, heads, encoder, CONTEXT, dim, heads, decoder, mels, F16))
        out.write(struct.pack("<2i", mels, BINS) + bytes(4 * mels * BINS))  # filters, which ingot computes itself
        out.write(struct.pack("<i", TEXT_TOKENS))
        for token in text_tokens():
            out.write(struct.pack("<I", len(token)) + token)
        for name, dims, kind in tensors(shape):
            n = math.prod(dims)
            out.write(struct.pack(f"<3i{len(dims)}i", len(dims), len(name), kind, *dims) + name.encode())
            data, size = data_of(name, n, kind, math.prod(dims[:-1])), n * (4 if kind == F32 else 2)
            for done in range(0, size, len(data)):
                out.write(data[: size - done])


def write_sound(seconds, path):
    """A voice at 90 to 220 Hz with 20 harmonics; syllables of a fifth of a second, and a pause after some of them."""
    samples, phase = array.array("h"), 0.0
    while len(samples) < seconds * RATE:
        pitch, n = random.uniform(90, 220), int(RATE * random.uniform(0.12, 0.28))
        loud = [random.random() / (1 + 0.3 * i) for i in range(20)]
        for i in range(n):
            phase += 2 * math.pi * pitch / RATE
            shape = math.sin(math.pi * i / n)
            samples.append(int(6000 * shape * sum(a * math.sin((k + 1) * phase) for k, a in enumerate(loud)) / 4))
        if len(samples) > 20 * RATE:  # the rest repeats
            samples *= math.ceil(seconds * RATE / len(samples))
        elif random.random() < 0.2:
            samples.extend([0] * int(RATE * 0.3))
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1), out.setsampwidth(2), out.setframerate(RATE)
        out.writeframes(samples[: int(seconds * RATE)].tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", nargs="?", choices=SHAPES)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--sound", type=float, default=0, metavar="SECONDS", help="write a recording of this length instead of a model")
    args = parser.parse_args()
    if (args.shape is None) == (args.sound == 0):
        parser.error("give a shape, or --sound SECONDS")
    write_sound(args.sound, args.out) if args.sound else write_model(args.shape, args.out)


if __name__ == "__main__":
    main()
