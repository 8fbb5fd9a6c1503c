#!/usr/bin/env python3
"""Makes the tiny encoders of tests/data/encoders, and the results of Hugging Face transformers and
sentence-transformers.

Each row of SPECS becomes NAME.gguf (random weights, written with the gguf package in the layout of llama.cpp's converters),
NAME/ (the same weights as sentence-transformers saves a model: safetensors, config.json, tokenizer.json, modules.json,
1_Pooling), NAME.npy (float32 [n_tokens, dim]: the vectors of every token of the sequences in NAME.json, one after another)
and NAME.json, which also has texts and the embeddings that sentence-transformers makes of them. Weights are rounded to F16
first, so that all of these belong to the same numbers. Tokenizers are those of tests/data/tokenizers/encoders.

    pip install -r tools/goldens/requirements.txt sentence-transformers tokenizers
    python tools/goldens/make_encoders.py [-o tests/data/encoders] [NAME ...]
"""
import base64
import json
import shutil
from dataclasses import dataclass, field

import gguf
import numpy as np
import safetensors.torch
import torch
import transformers
from gguf import GGMLQuantizationType as QT
from gguf import MODEL_ARCH as A
from gguf import PoolingType
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, decoders
from makers import make_all, write_sidecar
from transformers import BertConfig, Gemma3TextConfig, ModernBertConfig, NomicBertConfig, Qwen3Config, XLMRobertaConfig

LENGTHS = [1, 2, 17, 40, 64, 33]
TEXTS = ["the quick brown fox", "The other words, and numbers 123!", "a", "It was not what they said when people make water.",
         "x = {'a': [1, 2.5, -3e8]}", "e\u0301t\u00e9 \u4e2d\u6587 english"]
BYTES, BYTES_END = "byte_level", "byte_level_end"  # made here: bytes and a few merges; [CLS] and [SEP], or [SEP] only


@dataclass
class Spec:
    name: str
    config: type
    arch: gguf.MODEL_ARCH
    tokenizer: str
    pooling: str
    n_layers: int = 2
    dim: int = 48
    n_heads: int = 3
    ffn: int = 56
    n_ctx: int = 70
    extra: dict = field(default_factory=dict)
    dense: list = field(default_factory=list)  # widths of the Dense modules after pooling


SPECS = [
    Spec("bert", BertConfig, A.BERT, "bert_uncased", "cls", extra=dict(layer_norm_eps=1e-5, hidden_act="gelu")),
    Spec("xlm_roberta", XLMRobertaConfig, A.BERT, "xlm_roberta", "mean", n_heads=4, n_ctx=66,
         extra=dict(pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5)),
    Spec("nomic_bert", NomicBertConfig, A.NOMIC_BERT, "bert_uncased", "mean", n_heads=2,
         extra=dict(rope_parameters={"rope_type": "default", "rope_theta": 1000.0}, layer_norm_eps=1e-5)),
    Spec("modern_bert", ModernBertConfig, A.MODERN_BERT, BYTES, "cls", n_layers=4, extra=dict(
        local_attention=14, norm_eps=1e-5, attention_bias=False,
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 160000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})),
    Spec("qwen3_embed", Qwen3Config, A.QWEN3, BYTES_END, "last", n_heads=4, extra=dict(
        num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 1e6})),
    Spec("gemma_embed", Gemma3TextConfig, A.GEMMA_EMBEDDING, BYTES, "mean", n_layers=7, n_heads=4, dense=[72, 40], extra=dict(
        num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6, query_pre_attn_scalar=16, sliding_window=14, use_bidirectional_attention=True,
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})),
]


def byte_tokenizer(begins):
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the"), ("i", "n"), ("e", "r"), ("\u0120", "a")]
    tokens += ["".join(m) for m in merges]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")])
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]" if begins else "$A [SEP]",
                                                             special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    return tokenizer


def load_tokenizer(spec, root):
    if spec.tokenizer in (BYTES, BYTES_END):
        return byte_tokenizer(spec.tokenizer == BYTES)
    return Tokenizer.from_file(str(root / "tokenizers" / "encoders" / spec.tokenizer / "tokenizer.json"))


def make_model(spec, n_vocab, rng):
    positions = spec.n_ctx + (2 if spec.config is XLMRobertaConfig else 0)
    heads = {"local_attention"} & set(spec.extra)
    config = spec.config(vocab_size=n_vocab, hidden_size=spec.dim, num_hidden_layers=spec.n_layers, num_attention_heads=spec.n_heads,
                         intermediate_size=spec.ffn, max_position_embeddings=positions, attn_implementation="eager",
                         **({"pad_token_id": n_vocab - 3, "cls_token_id": n_vocab - 5, "sep_token_id": n_vocab - 4, "bos_token_id": n_vocab - 5,
                             "eos_token_id": n_vocab - 4} if heads else {}), **spec.extra)
    kwargs = {"add_pooling_layer": False} if spec.config in (BertConfig, XLMRobertaConfig) else {}
    model = transformers.AutoModel.from_config(config, dtype=torch.float32, **kwargs).eval()
    with torch.no_grad():
        for name, param in model.named_parameters():
            if "norm" in name.lower() and name.endswith("weight"):
                w = (0 if spec.arch == A.GEMMA_EMBEDDING else 1) + 0.3 * rng.standard_normal(tuple(param.shape))
            elif param.dim() == 1:
                w = 0.3 * rng.standard_normal(tuple(param.shape))
            elif "embed" in name:
                w = rng.standard_normal(tuple(param.shape))
            else:
                w = (2.0 if any(k in name for k in ("query", "key", "q_proj", "k_proj")) else 1.3) / param.shape[1] ** 0.5 * rng.standard_normal(tuple(param.shape))
            param.copy_(torch.from_numpy(w.astype(np.float16 if param.dim() == 2 else np.float32)).float())
    if spec.dense:
        model.dense = torch.nn.ModuleList([torch.nn.Linear(a, b, bias=False) for a, b in zip([spec.dim] + spec.dense, spec.dense)])
        for layer in model.dense:
            w = layer.in_features ** -0.5 * rng.standard_normal(tuple(layer.weight.shape))
            layer.weight.data.copy_(torch.from_numpy(w.astype(np.float16)).float())
    return model


@torch.inference_mode()
def hidden_states(model, sequences):
    """Runs each sequence separately, so that there is no padding -> float32 [n_tokens, dim]."""
    return np.concatenate([model(input_ids=torch.tensor([s])).last_hidden_state[0].numpy() for s in sequences])


# ---------------------------------------------------------------- GGUF

def phantom(token, special):
    """WordPiece tokens in the spelling of llama.cpp's converter."""
    return token if special else token[2:] if token.startswith("##") else "\u2581" + token


def add_tokenizer(writer, spec, tokenizer):
    raw = json.loads(tokenizer.to_str())
    size = tokenizer.get_vocab_size()
    names = [tokenizer.id_to_token(i) for i in range(size)]
    special = {t["id"] for t in raw["added_tokens"] if t["special"]}
    kinds = [gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(size)]
    ids = {name: i for i, name in enumerate(names)}
    if raw["model"]["type"] == "WordPiece":
        writer.add_tokenizer_model("bert")
        writer.add_tokenizer_pre("default")
        writer.add_token_list([phantom(t, i in special) for i, t in enumerate(names)])
        writer.add_cls_token_id = lambda i: writer.add_uint32("tokenizer.ggml.cls_token_id", i)
    elif raw["model"]["type"] == "Unigram":
        writer.add_tokenizer_model("t5")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(names)
        scores = [s for _, s in raw["model"]["vocab"]]
        writer.add_token_scores(scores + [0.0] * (size - len(scores)))
        writer.add_add_space_prefix(True)
        writer.add_remove_extra_whitespaces(True)
        charsmap = base64.b64decode(raw["normalizer"]["normalizers"][0]["precompiled_charsmap"])
        writer.add_precompiled_charsmap(charsmap)
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(names)
        writer.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in raw["model"]["merges"]])
    writer.add_token_types(kinds)
    first, last = ("<s>", "</s>") if "<s>" in ids else ("[CLS]", "[SEP]")
    writer.add_bos_token_id(ids[first])
    writer.add_eos_token_id(ids[last])
    writer.add_sep_token_id(ids[last])
    writer.add_unk_token_id(ids.get("[UNK]", ids.get("<unk>")))
    writer.add_add_bos_token(spec.tokenizer != BYTES_END)
    writer.add_add_eos_token(True)


def write_gguf(path, spec, model, tokenizer):
    config, name = model.config, gguf.MODEL_ARCH_NAMES[spec.arch]
    writer = gguf.GGUFWriter(path, name)
    writer.add_name(f"golden {spec.name}")
    writer.add_block_count(spec.n_layers)
    writer.add_context_length(spec.n_ctx)
    writer.add_embedding_length(spec.dim)
    writer.add_feed_forward_length(spec.ffn)
    writer.add_head_count(spec.n_heads)
    if spec.arch in (A.QWEN3, A.GEMMA_EMBEDDING):
        rope = spec.extra["rope_parameters"]
        writer.add_layer_norm_rms_eps(spec.extra["rms_norm_eps"])
        writer.add_head_count_kv(spec.extra["num_key_value_heads"])
        writer.add_key_length(spec.extra["head_dim"])
        writer.add_value_length(spec.extra["head_dim"])
        writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    else:
        writer.add_layer_norm_eps(spec.extra.get("layer_norm_eps", spec.extra.get("norm_eps")))
        writer.add_causal_attention(False)
    writer.add_pooling_type(PoolingType[spec.pooling.upper()])
    if spec.arch == A.NOMIC_BERT:
        writer.add_rope_freq_base(1000.0)
    if spec.arch == A.GEMMA_EMBEDDING:
        writer.add_sliding_window(spec.extra["sliding_window"])
        for number, (n_in, n_out) in enumerate(zip([spec.dim] + spec.dense, spec.dense), 2):
            writer.add_dense_features_dims(f"dense_{number}", n_in, n_out)
            writer.add_tensor(f"dense_{number}.weight", model.dense[number - 2].weight.detach().numpy().astype(np.float16))
    if spec.arch == A.MODERN_BERT:
        writer.add_rope_freq_base(160000.0)
        writer.add_float32(f"{name}.rope.freq_base_swa", 10000.0)
        writer.add_sliding_window(spec.extra["local_attention"])
        writer.add_sliding_window_pattern(3)
        writer.add_vocab_size(config.vocab_size)
    add_tokenizer(writer, spec, tokenizer)
    for tensor_name, data in gguf_tensors(spec, model):
        wide = data.ndim == 1 or tensor_name.startswith(("position_embd", "token_types"))
        writer.add_tensor(tensor_name, data.astype(np.float32 if wide else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_tensors(spec, model):
    """[(GGUF name, data)], fused as in llama.cpp's converters."""
    names = gguf.get_tensor_name_map(spec.arch, spec.n_layers)
    state = {k: v.numpy() for k, v in model.state_dict().items() if not k.endswith("_ids") and not k.startswith("dense.")}
    renamed = {"layers.{}.self_attn.o_proj": "encoder.layers.{}.attn.out_proj", "layers.{}.mlp.up_proj": "encoder.layers.{}.mlp.fc11",
               "layers.{}.mlp.gate_proj": "encoder.layers.{}.mlp.fc12", "layers.{}.mlp.down_proj": "encoder.layers.{}.mlp.fc2",
               "layers.{}.post_attention_layernorm": "encoder.layers.{}.norm1", "layers.{}.post_mlp_layernorm": "encoder.layers.{}.norm2"}
    out = []
    for key, data in state.items():
        if spec.arch == A.NOMIC_BERT and ".self_attn." in key and not key.endswith("o_proj.weight"):
            if key.endswith("q_proj.weight"):
                layer = key.split(".")[1]
                qkv = [state[f"layers.{layer}.self_attn.{p}_proj.weight"] for p in "qkv"]
                out.append((f"blk.{layer}.attn_qkv.weight", np.concatenate(qkv)))
            continue
        for old, new in renamed.items():
            for layer in range(spec.n_layers if spec.arch == A.NOMIC_BERT else 0):
                key = key.replace(old.format(layer), new.format(layer))
        if spec.config is XLMRobertaConfig and "position_embeddings" in key:
            data = data[2:]
        if spec.arch in (A.QWEN3, A.GEMMA_EMBEDDING):
            key = "model." + key
            data = data + 1 if spec.arch == A.GEMMA_EMBEDDING and key.endswith("norm.weight") else data
        out.append((names.get_name(key, (".weight", ".bias")), data))
        assert out[-1][0], key
    return out


# ---------------------------------------------------------------- sentence-transformers

def write_directory(folder, spec, model, tokenizer):
    shutil.rmtree(folder, ignore_errors=True)
    model.config.dtype = torch.float16
    state = {k: v.half() if v.dim() == 2 else v for k, v in model.state_dict().items() if not k.startswith("dense.")}
    model.save_pretrained(folder, state_dict=state)
    first, last = ("<s>", "</s>") if tokenizer.token_to_id("<s>") is not None else ("[CLS]", "[SEP]")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, cls_token=first, sep_token=last, model_max_length=spec.n_ctx,
                                                pad_token="<pad>" if first == "<s>" else "[PAD]", unk_token="<unk>" if first == "<s>" else "[UNK]")
    fast.save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    mode = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}[spec.pooling]
    modes = {m: m == mode for m in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")}
    pooling = {"word_embedding_dimension": spec.dim, **{f"pooling_mode_{k}": v for k, v in modes.items()}}
    modules = [{"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{t}"}
               for i, (p, t) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling")] + [(f"{i}_Dense", "Dense") for i in range(2, 2 + len(spec.dense))] +
                                         [(f"{2 + len(spec.dense)}_Normalize", "Normalize")])]
    prompts = {"prompts": {"query": "the query: ", "document": ""}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    for name, value in (("1_Pooling/config.json", pooling), ("modules.json", modules), ("config_sentence_transformers.json", prompts)):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")
    for i, layer in enumerate(model.dense if spec.dense else []):
        (folder / f"{i + 2}_Dense").mkdir()
        config = {"in_features": layer.in_features, "out_features": layer.out_features, "bias": False,
                  "activation_function": "torch.nn.modules.linear.Identity"}
        (folder / f"{i + 2}_Dense" / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        safetensors.torch.save_file({"linear.weight": layer.weight.detach().half()}, folder / f"{i + 2}_Dense" / "model.safetensors")
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(0o644)


def sentence_embeddings(folder):
    from sentence_transformers import SentenceTransformer
    normalize = folder / json.loads((folder / "modules.json").read_text())[-1]["path"]
    normalize.mkdir(exist_ok=True)
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    out = {"plain": model.encode(TEXTS), "query": model.encode(TEXTS, prompt_name="query")}
    normalize.rmdir()
    return {k: [[round(float(x), 7) for x in row] for row in v] for k, v in out.items()}


def make_golden(spec, seed, out):
    rng = np.random.default_rng(seed)
    tokenizer = load_tokenizer(spec, out.parent)
    model = make_model(spec, tokenizer.get_vocab_size() + 2, rng)  # padded, as in real models
    sequences = [rng.integers(5, tokenizer.get_vocab_size(), n).tolist() for n in LENGTHS]
    hidden = hidden_states(model, sequences)
    assert 0.3 < hidden.std() < 10, hidden.std()
    write_gguf(out / f"{spec.name}.gguf", spec, model, tokenizer)
    write_directory(out / spec.name, spec, model, tokenizer)
    np.save(out / f"{spec.name}.npy", hidden)
    sidecar = {"name": spec.name, "pooling": spec.pooling, "sequences": sequences, "texts": TEXTS, "ids": [tokenizer.encode(t).ids for t in TEXTS],
               "embeddings": sentence_embeddings(out / spec.name), "seed": seed, "transformers": transformers.__version__}
    write_sidecar(out / f"{spec.name}.json", sidecar)
    print(f"{spec.name:14} hidden std {hidden.std():.2f}  {hidden.shape}")


if __name__ == "__main__":
    make_all(__doc__, SPECS, make_golden, 3000, "tests/data/encoders")
