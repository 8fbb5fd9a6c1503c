#!/usr/bin/env python3
"""Makes the tiny cross-encoders of tests/data/rankers and the scores that sentence-transformers and transformers compute with them.

Each row of SPECS becomes NAME/ (random weights as transformers saves a model that classifies: safetensors, config.json,
tokenizer.json), NAME.gguf (the same, in the layout of llama.cpp's converters; a BERT's pooler as `cls`), and NAME.json: queries,
documents, the tokens of each pair, what the classifier gives (`logits`, of transformers) and the scores (`scores`, of
sentence-transformers' CrossEncoder). Weights are rounded to F16 first.

    pip install -r tools/goldens/requirements.txt sentence-transformers tokenizers
    python tools/goldens/make_rankers.py [-o tests/data/rankers] [NAME ...]
"""
import json
import shutil
from dataclasses import dataclass, field

import gguf
import numpy as np
import torch
import transformers
from gguf import MODEL_ARCH as A
from transformers import BertConfig, ModernBertConfig, Qwen3Config, XLMRobertaConfig

import make_encoders as encoders
from makers import make_all, write_sidecar

QUERY = "what did the other people say"
DOCUMENTS = ["the quick brown fox", "It was not what they said when people make water.", "a", "numbers 123 and words, (or none)!",
             " ".join(["what people say when they make words of water"] * 9), ""]
YES, NO = 40, 33  # tokens of the model that answers in words
PROMPT = "[CLS]Is it so?\nQuery: {query}\nDocument: {document}[SEP]"


@dataclass
class Spec:
    name: str
    config: type
    arch: gguf.MODEL_ARCH
    tokenizer: str
    n_layers: int = 2
    dim: int = 48
    n_heads: int = 3
    ffn: int = 56
    n_ctx: int = 70
    between: int = 1  # tokens between the texts of a pair
    extra: dict = field(default_factory=dict)
    activation: str = ""
    asked: bool = False  # the model answers yes or no


SPECS = [
    Spec("bert", BertConfig, A.BERT, "bert_uncased", activation="torch.nn.modules.linear.Identity", extra=dict(layer_norm_eps=1e-5, hidden_act="gelu")),
    Spec("xlm_roberta", XLMRobertaConfig, A.BERT, "xlm_roberta", n_heads=4, n_ctx=66, between=2,
         extra=dict(pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5)),
    Spec("modern_bert", ModernBertConfig, A.MODERN_BERT, encoders.BYTES, n_layers=4, n_ctx=128, extra=dict(
        local_attention=14, norm_eps=1e-5, attention_bias=False, classifier_pooling="mean", classifier_bias=True, norm_bias=False,
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 160000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})),
    Spec("qwen3_yes", Qwen3Config, A.QWEN3, encoders.BYTES_END, n_heads=4, n_ctx=512, between=0, asked=True, extra=dict(
        num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 1e6})),
    Spec("qwen3_score", Qwen3Config, A.QWEN3, encoders.BYTES, n_heads=4, n_ctx=128, extra=dict(
        num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 1e6})),
]


def set_pair(tokenizer, spec):
    """Sets the tokenizer's pair template to that of BERT, RoBERTa or ModernBERT."""
    from tokenizers import processors
    first, last = ("<s>", "</s>") if tokenizer.token_to_id("<s>") is not None else ("[CLS]", "[SEP]")
    second_type = 1 if spec.config is BertConfig else 0
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {' '.join([last] * spec.between)} $B:{second_type} {last}:{second_type}",
        special_tokens=[(first, tokenizer.token_to_id(first)), (last, tokenizer.token_to_id(last))])


def make_model(spec, n_vocab, rng):
    positions = spec.n_ctx + (2 if spec.config is XLMRobertaConfig else 0)
    ends = {"pad_token_id": n_vocab - 3, "cls_token_id": n_vocab - 5, "sep_token_id": n_vocab - 4, "bos_token_id": n_vocab - 5,
            "eos_token_id": n_vocab - 4} if spec.config is ModernBertConfig or spec.name == "qwen3_score" else {}
    config = spec.config(vocab_size=n_vocab, hidden_size=spec.dim, num_hidden_layers=spec.n_layers, num_attention_heads=spec.n_heads,
                         intermediate_size=spec.ffn, max_position_embeddings=positions, attn_implementation="eager",
                         **({} if spec.asked else {"num_labels": 1}), **ends, **spec.extra)
    if spec.activation:
        config.sentence_transformers = {"activation_fn": spec.activation}
    auto = transformers.AutoModelForCausalLM if spec.asked else transformers.AutoModelForSequenceClassification
    model = auto.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, param in model.named_parameters():
            if "norm" in name.lower() and name.endswith("weight"):
                w = 1 + 0.3 * rng.standard_normal(tuple(param.shape))
            elif param.dim() == 1:
                w = 0.3 * rng.standard_normal(tuple(param.shape))
            elif "embed" in name:
                w = rng.standard_normal(tuple(param.shape))
            else:
                w = (2.0 if any(k in name for k in ("query", "key", "q_proj", "k_proj")) else 1.3) / param.shape[1] ** 0.5 * rng.standard_normal(tuple(param.shape))
            param.copy_(torch.from_numpy(w.astype(np.float16 if param.dim() == 2 else np.float32)).float())
    return model


# ---------------------------------------------------------------- GGUF

def rank_tensors(spec, model):
    """The encoder's tensors and the classifier's, by llama.cpp's names."""
    state = {k: v.numpy() for k, v in model.state_dict().items() if not k.endswith("_ids")}
    head = {"classifier.dense": "cls", "classifier.out_proj": "cls.output", "head.dense": "cls", "head.norm": "cls.norm",
            "bert.pooler.dense": "cls", "classifier": "cls.output", "score": "cls.output"}
    out, body = [], {}
    for key, data in state.items():
        stem, suffix = key.rsplit(".", 1)
        if stem in head:
            out.append((f"{head[stem]}.{suffix}", data))
        elif stem == "lm_head":
            out.append(("cls.output.weight", np.stack([data[YES], data[NO]])))
        else:
            body[key.split(".", 1)[1]] = torch.from_numpy(data)

    class Body:
        @staticmethod
        def state_dict():
            return body
    return encoders.gguf_tensors(spec, Body) + out


def write_gguf(path, spec, model, tokenizer):
    config, name = model.config, gguf.MODEL_ARCH_NAMES[spec.arch]
    writer = gguf.GGUFWriter(path, name)
    writer.add_name(f"golden {spec.name}")
    writer.add_block_count(spec.n_layers)
    writer.add_context_length(spec.n_ctx)
    writer.add_embedding_length(spec.dim)
    writer.add_feed_forward_length(spec.ffn)
    writer.add_head_count(spec.n_heads)
    writer.add_pooling_type(gguf.PoolingType.RANK)
    if spec.arch == A.QWEN3:
        writer.add_layer_norm_rms_eps(spec.extra["rms_norm_eps"])
        writer.add_head_count_kv(spec.extra["num_key_value_heads"])
        writer.add_key_length(spec.extra["head_dim"])
        writer.add_value_length(spec.extra["head_dim"])
        writer.add_rope_freq_base(spec.extra["rope_parameters"]["rope_theta"])
    if spec.asked:
        writer.add_classifier_output_labels(["yes", "no"])
        writer.add_chat_template([{"name": "rerank", "template": PROMPT}])
    if spec.arch != A.QWEN3:
        writer.add_layer_norm_eps(spec.extra.get("layer_norm_eps", spec.extra.get("norm_eps")))
        writer.add_causal_attention(False)
    if spec.arch == A.MODERN_BERT:
        writer.add_rope_freq_base(160000.0)
        writer.add_float32(f"{name}.rope.freq_base_swa", 10000.0)
        writer.add_sliding_window(spec.extra["local_attention"])
        writer.add_sliding_window_pattern(3)
        writer.add_vocab_size(config.vocab_size)
    encoders.add_tokenizer(writer, spec, tokenizer)
    writer.add_add_sep_token(spec.between == 2)
    for tensor_name, data in rank_tensors(spec, model):
        wide = data.ndim == 1 or tensor_name.startswith(("position_embd", "token_types"))
        writer.add_tensor(tensor_name, data.astype(np.float32 if wide else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---------------------------------------------------------------- transformers, sentence-transformers

def write_directory(folder, spec, model, tokenizer):
    shutil.rmtree(folder, ignore_errors=True)
    model.config.dtype = torch.float16
    model.save_pretrained(folder, state_dict={k: v.half() if v.dim() == 2 else v for k, v in model.state_dict().items()})
    first, last = ("<s>", "</s>") if tokenizer.token_to_id("<s>") is not None else ("[CLS]", "[SEP]")
    names = dict(cls_token=first, sep_token=last, pad_token="<pad>" if first == "<s>" else "[PAD]", unk_token="<unk>" if first == "<s>" else "[UNK]")
    inputs = ["input_ids", "attention_mask"] + (["token_type_ids"] if spec.config is BertConfig else [])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=spec.n_ctx, model_input_names=inputs, **names)
    fast.save_pretrained(folder)
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(0o644)
    return fast


@torch.inference_mode()
def pair_scores(folder, spec, model, fast):
    """The classifier's result for each pair separately, and CrossEncoder's scores of all pairs."""
    from sentence_transformers import CrossEncoder
    encoded = [{k: v[0] for k, v in fast([[QUERY, d]], truncation="longest_first", max_length=spec.n_ctx).items()} for d in DOCUMENTS]
    logits = [model(**{k: torch.tensor([v]) for k, v in e.items()}).logits[0, 0].item() for e in encoded]
    cross = CrossEncoder(str(folder), device="cpu", max_length=spec.n_ctx, model_kwargs={"dtype": torch.float32})
    scores = cross.predict([(QUERY, d) for d in DOCUMENTS], batch_size=1)
    return [e["input_ids"] for e in encoded], logits, [float(s) for s in scores]


@torch.inference_mode()
def asked_scores(model, tokenizer):
    """The probability of yes against no after the prompt, as in Qwen3-Reranker's model card."""
    names = "[CLS]", "[SEP]"
    ids = []
    for document in DOCUMENTS:
        middle = PROMPT[len(names[0]):-len(names[1])].replace("{query}", QUERY).replace("{document}", document)
        own = tokenizer.encode(middle, add_special_tokens=False).ids
        ids.append([tokenizer.token_to_id(names[0])] + own + [tokenizer.token_to_id(names[1])])
    logits = [model(torch.tensor([i])).logits[0, -1] for i in ids]
    return ids, [(x[YES] - x[NO]).item() for x in logits], [torch.softmax(torch.stack([x[NO], x[YES]]), 0)[1].item() for x in logits]


def write_asked_directory(folder, model, tokenizer, n_ctx):
    """Writes a model that answers yes or no as sentence-transformers saves it: LogitScore after the transformer, the
    question in the chat template."""
    import tempfile
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules.transformer import Transformer
    from sentence_transformers.cross_encoder.modules.logit_score import LogitScore
    text = lambda role: f"{{{{ messages | selectattr('role', 'eq', '{role}') | map(attribute='content') | first }}}}"
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as plain:
        model.config.dtype = torch.float16
        model.save_pretrained(plain, state_dict={k: v.half() if v.dim() == 2 else v for k, v in model.state_dict().items()})
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=n_ctx, pad_token="[PAD]", unk_token="[UNK]",
                                                    cls_token="[CLS]", sep_token="[SEP]")
        fast.chat_template = PROMPT.replace("{query}", text("query")).replace("{document}", text("document"))
        fast.save_pretrained(plain)
        transformer = Transformer(plain, transformer_task="text-generation", model_kwargs={"dtype": torch.float32})
        cross = CrossEncoder(modules=[transformer, LogitScore(YES, NO)], device="cpu")
        scores = cross.predict([(QUERY, d) for d in DOCUMENTS], batch_size=1)
        for param in transformer.model.parameters():
            param.data = param.data.half() if param.dim() == 2 else param.data
        cross.save_pretrained(str(folder))
    (folder / "README.md").unlink(missing_ok=True)
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(0o644)
    return [float(s) for s in scores]


def make_golden(spec, seed, out):
    rng = np.random.default_rng(seed)
    tokenizer = encoders.load_tokenizer(spec, out.parent)
    model = make_model(spec, tokenizer.get_vocab_size() + 2, rng)
    if spec.asked:
        tokenizer.post_processor = None  # no tokens are added around the prompt
        ids, logits, scores = asked_scores(model, tokenizer)
        np.testing.assert_allclose(write_asked_directory(out / spec.name, model, tokenizer, spec.n_ctx), scores, atol=1e-5)
    else:
        set_pair(tokenizer, spec)
        fast = write_directory(out / spec.name, spec, model, tokenizer)
        ids, logits, scores = pair_scores(out / spec.name, spec, model, fast)
    write_gguf(out / f"{spec.name}.gguf", spec, model, tokenizer)
    golden = {"name": spec.name, "query": QUERY, "documents": DOCUMENTS, "ids": ids, "logits": logits, "scores": scores,
              "raw": bool(spec.activation), "seed": seed, "transformers": transformers.__version__}
    write_sidecar(out / f"{spec.name}.json", golden)
    print(f"{spec.name:12} logits {np.round(logits, 3)} scores {np.round(scores, 3)} lengths {[len(i) for i in ids]}")


if __name__ == "__main__":
    make_all(__doc__, SPECS, make_golden, 4000, "tests/data/rankers")
