#!/usr/bin/env python3
"""Makes the tiny models that hear of tests/data/ears, and the results of Hugging Face transformers.

Each row of SPECS becomes a directory NAME with random weights: mmproj.gguf (the ears with the tensors and keys of
llama.cpp's converter) and goldens.json: for each sound, some of the vectors that the ears make. Voxtral is also the
files of a Hugging Face checkpoint, and has prompts: their tokens and some logits. The sounds are those of
make_speech.py. Transformers has no Ultravox: its projector is written here, behind transformers' encoder.

    pip install -r tools/goldens/requirements.txt
    python tools/goldens/make_ears.py [-o tests/data/ears] [NAME ...]
"""
import json
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from typing import Callable

import numpy as np
import tokenizers
import torch
import transformers
from ear_dialects import write_mmproj
from make_speech import sound
from makers import make_all
from tiny_tokenizer import byte_tokens
from transformers.models.qwen2_audio.modeling_qwen2_audio import Qwen2AudioEncoder, Qwen2AudioMultiModalProjector
from transformers.models.whisper.modeling_whisper import WhisperEncoder
from weight_parts import pack

N_MELS, DIM, FFN, N_ROWS, TEXT_DIM = 8, 16, 64, 24, 32
N_ROWS_ULTRAVOX = 20  # 8 does not divide it: as in the published model, zeros fill the last group
WINDOW = 2 * N_ROWS * 160  # samples
SOUNDS = [(1, 31), (5000, 32), (WINDOW, 33), (WINDOW + 1, 34), (20000, 35)]  # samples and seed
N_VECTOR_ROWS, N_LOGIT_ROWS = 4, 5
PROMPTS = [  # text, with [AUDIO] for a whole recording, and the recordings
    ("[INST][BEGIN_AUDIO][AUDIO]the cat[/INST]", [(5000, 41)]),
    ("[INST][BEGIN_AUDIO][AUDIO] a hat\n[BEGIN_AUDIO][AUDIO]on it[/INST]", [(WINDOW + 1, 42), (3000, 43)]),
]
SPECIAL = ["<s>", "</s>", "[INST]", "[/INST]", "[AUDIO]", "[BEGIN_AUDIO]"]
AUDIO_TOKEN = 256 + SPECIAL.index("[AUDIO]")


@dataclass
class Spec:
    name: str
    make: Callable  # () -> model with an audio_tower and a multi_modal_projector
    hear: Callable  # model, features [n_windows, N_MELS, 2 * n_rows] -> vectors [n_windows * rows, TEXT_DIM]
    seed: int
    stack: int = 0  # rows of the encoder side by side in a vector
    n_rows: int = N_ROWS  # of the encoder, for a window
    tokenizer: Callable = None  # () -> that of the text model, if there is one


# ---- Voxtral

def voxtral():
    text = dict(hidden_size=TEXT_DIM, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=1, head_dim=16, vocab_size=256 + len(SPECIAL), max_position_embeddings=512,
                bos_token_id=256, eos_token_id=257, pad_token_id=None, tie_word_embeddings=False)
    ears = dict(hidden_size=DIM, intermediate_size=FFN, num_hidden_layers=2, num_attention_heads=2, num_mel_bins=N_MELS,
                max_source_positions=N_ROWS)
    config = transformers.VoxtralConfig(text_config=dict(model_type="llama", **text), audio_token_id=AUDIO_TOKEN,
                                        audio_config=dict(model_type="voxtral_encoder", **ears))
    return transformers.VoxtralForConditionalGeneration._from_config(config, attn_implementation="eager")


def voxtral_tokenizer():
    """The bytes and SPECIAL."""
    model = tokenizers.models.BPE({t: i for i, t in enumerate(byte_tokens())}, [])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=SPECIAL[0], eos_token=SPECIAL[1])


def hear_voxtral(model, features):
    return model.get_audio_features(features).pooler_output


# ---- Ultravox

def encoder_config(cls, n_rows=N_ROWS):
    config = cls(d_model=DIM, encoder_ffn_dim=FFN, encoder_layers=2, encoder_attention_heads=2, num_mel_bins=N_MELS,
                 max_source_positions=n_rows)
    config._attn_implementation = "eager"
    return config


class UltravoxProjector(torch.nn.Module):
    def __init__(self, stack, hidden):
        super().__init__()
        self.stack = stack
        self.ln_pre = torch.nn.RMSNorm(stack * DIM, eps=1e-6)
        self.linear_1 = torch.nn.Linear(stack * DIM, 2 * hidden, bias=False)
        self.ln_mid = torch.nn.RMSNorm(hidden, eps=1e-6)
        self.linear_2 = torch.nn.Linear(hidden, TEXT_DIM, bias=False)

    def forward(self, rows):
        """rows: [n_windows, n_rows, DIM]"""
        rows = torch.nn.functional.pad(rows, (0, 0, 0, -rows.shape[1] % self.stack))
        values, gate = self.linear_1(self.ln_pre(rows.reshape(-1, self.stack * DIM))).chunk(2, dim=-1)
        return self.linear_2(self.ln_mid(torch.nn.functional.silu(gate) * values))


class Ultravox(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.audio_tower = WhisperEncoder(encoder_config(transformers.WhisperConfig, N_ROWS_ULTRAVOX))
        self.multi_modal_projector = UltravoxProjector(stack=8, hidden=16)


# ---- Qwen2-Audio

class Qwen2Audio(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.audio_tower = Qwen2AudioEncoder(encoder_config(transformers.Qwen2AudioEncoderConfig))
        sizes = transformers.Qwen2AudioConfig(audio_config=dict(model_type="qwen2_audio_encoder", d_model=DIM),
                                              text_config=dict(model_type="llama", hidden_size=TEXT_DIM))
        self.multi_modal_projector = Qwen2AudioMultiModalProjector(sizes)


def hear(model, features):
    return model.multi_modal_projector(model.audio_tower(features).last_hidden_state).reshape(-1, TEXT_DIM)


SPECS = [
    Spec("voxtral", voxtral, hear_voxtral, seed=2201, stack=4, tokenizer=voxtral_tokenizer),
    Spec("ultravox", Ultravox, hear, seed=2202, stack=8, n_rows=N_ROWS_ULTRAVOX),
    Spec("qwen2a", Qwen2Audio, hear, seed=2203),
]


def randomize(model, seed):
    """Norms near 1, attention far from uniform, vectors and logits with a deviation of about 1, all values of float16.
    Matrices have multiples of 1/16, which weight_parts.py stores in few bytes."""
    rng = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        shape = tuple(parameter.shape)
        if len(shape) == 1:
            values = rng.normal(1.0 if name.endswith("weight") else 0.0, 0.2, shape)
        else:
            is_table = "embed" in name
            values = np.round(rng.normal(0.0, 0.5 if is_table else 1.3 / np.sqrt(np.prod(shape[1:])), shape) * 16) / 16
        parameter.data = torch.from_numpy(values.astype(np.float16).astype(np.float32))


def windows_of(samples, n_rows=N_ROWS):
    """The features of a recording, padded to whole windows: [n_windows, N_MELS, 2 * n_rows]. The floor of the logarithm
    depends on the loudest value of all windows, so all are computed at once, as VoxtralProcessor does."""
    padded = np.pad(samples, (0, -len(samples) % (2 * n_rows * 160)))
    extractor = transformers.WhisperFeatureExtractor(feature_size=N_MELS)
    features = torch.tensor(extractor._np_extract_fbank_features(padded[None], "cpu"))[0]
    return features.reshape(N_MELS, -1, 2 * n_rows).transpose(0, 1)


def spread(n, n_rows):
    """Up to n_rows of n indices, with the first and the last."""
    return sorted(set(np.linspace(0, n - 1, n_rows).astype(int).tolist()))


def rounded(values):
    return [[round(float(v), 5) for v in row] for row in values]


def sound_goldens(spec, model):
    goldens = []
    for n, seed in SOUNDS:
        vectors = spec.hear(model, windows_of(sound(n, seed), spec.n_rows))
        rows = spread(len(vectors), N_VECTOR_ROWS)
        goldens.append({"n": n, "seed": seed, "n_vectors": len(vectors), "vector_rows": rows,
                        "vectors": rounded(vectors[rows])})
    return goldens


def prompt_goldens(spec, model, tokenizer):
    goldens = []
    for text, sounds in PROMPTS:
        features = [windows_of(sound(n, seed)) for n, seed in sounds]
        first, *rest = text.split("[AUDIO]")
        for windows, after in zip(features, rest, strict=True):
            first += "[AUDIO]" * len(spec.hear(model, windows)) + after
        ids = tokenizer(first, add_special_tokens=False)["input_ids"]
        logits = model(input_ids=torch.tensor([ids]), input_features=torch.cat(features)).logits[0]
        rows = spread(len(ids), N_LOGIT_ROWS)
        goldens.append({"text": text, "sounds": sounds, "tokens": ids, "logit_rows": rows,
                        "logits": rounded(logits[rows])})
    return goldens


def write_checkpoint(out, model, tokenizer):
    """The files of a checkpoint. Git holds the weights of the ears once, in mmproj.gguf."""
    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    transformers.WhisperFeatureExtractor(feature_size=N_MELS).save_pretrained(out)
    (out / "generation_config.json").unlink()
    weights = out / "model.safetensors"
    assert pack(weights, out / "mmproj.gguf")
    (out / ".gitignore").write_text(f"# Unpacked from its parts by scripts/weight_parts.py.\n/{weights.name}\n")


@torch.no_grad()
def make_golden(spec, seed, folder):
    out = folder / spec.name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    model = spec.make().eval()
    randomize(model, seed)
    goldens = {"seed": seed, "versions": {p: version(p) for p in ("transformers", "torch")},
               "sounds": sound_goldens(spec, model)}
    ears = getattr(model, "model", model)
    write_mmproj(out / "mmproj.gguf", spec.name, ears, TEXT_DIM, spec.stack)
    if spec.tokenizer:
        tokenizer = spec.tokenizer()
        goldens["prompts"] = prompt_goldens(spec, model, tokenizer)
        write_checkpoint(out, model, tokenizer)
    (out / "goldens.json").write_text(json.dumps(goldens, separators=(",", ":")) + "\n")
    print(spec.name, [(p.name, p.stat().st_size) for p in sorted(out.iterdir())],
          "deviation of vectors", deviation(goldens["sounds"], "vectors"),
          "of logits", deviation(goldens.get("prompts", []), "logits"))


def deviation(goldens, key):
    return np.std([v for golden in goldens for row in golden[key] for v in row] or [0]).round(2)


if __name__ == "__main__":
    make_all(__doc__, SPECS, make_golden, 2200, "tests/data/ears")
