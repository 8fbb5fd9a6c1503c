#!/usr/bin/env python3
"""Makes tests/data/tokenizers/hf: small tokenizer.json files like those of several model families, and the ids that
Hugging Face `tokenizers` gives with them; and onig.json: where their expressions (Oniguruma's) split texts.

    pip install tokenizers
    python3 tools/tokenizer_goldens/make_hf.py tests/data/tokenizers/hf

The output depends on SEED and on the package only; the committed files came from tokenizers 0.23.3.
"""
import json
import random
import sys
from pathlib import Path

from make import CONTRACTIONS, PRETOKENIZERS, SPACES, corpus, make_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SEED = 20261121
MARK = "\u2581"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
SPECIAL = ["<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"]
PROBES = [r"\s+$", "^a", r"\d+", r"\w+", r"\W+", r"[\w']+", r"\h+", r"\u0041+", r"\x{41}b?", "ba{,2}", r"\p{^L}+", r"\P{L}+", r"[^\S\n]+", r"[\S\n]+",
          r"\p{Han}+", r"\P{Han}+", r"\p{^Han}+", r"[\p{Hiragana}\p{Katakana}]+", "(?i:s)+", "(?<=a)b", "(?<!a)b", "(?>a|ab)c?",
          r"\.|\n", "[.$^]+", r"\t|\v|\f", r"a\z", r"\Aa", "[^a]+", r"[\]\[\\]"]


def byte_level(steps, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train(tokenizer, rng, size, alphabet):
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False, max_token_length=12)
    tokenizer.train_from_iterator(corpus(rng), trainer)
    return json.loads(tokenizer.to_str())


def sentencepiece(rng, normalizer, pre_tokenizer, strip):
    """BPE as Hugging Face writes SentencePiece's: <unk>, <s>, </s>, the bytes, then the trained tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    trained = train(tokenizer, rng, 400, [])
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *trained["model"]["vocab"]]
    tokenizer.model = models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m) for m in trained["model"]["merges"]],
                                 unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in tokens[:3]])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))
    return tokenizer


def make_tokenizers(rng):
    """name: (tokenizer, tokenizer_config.json)"""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    cut = lambda regex, **kwargs: pre_tokenizers.Split(Regex(regex), kwargs.pop("behavior", "isolated"), **kwargs)
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    llama3 = byte_level([cut(LLAMA3), last], ignore_merges=True)
    train(llama3, rng, 420, alphabet)
    llama3.add_special_tokens(SPECIAL)
    bos = llama3.token_to_id("<|bos|>")
    llama3.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", bos)])])
    yield "llama3", llama3, {"bos_token": "<|bos|>", "eos_token": {"content": "<|eos|>", "special": True}}

    qwen2 = byte_level([cut(QWEN2), last])
    qwen2.normalizer = normalizers.NFC()
    train(qwen2, rng, 420, alphabet)
    qwen2.add_special_tokens(SPECIAL[2:])
    qwen2.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<pad_l>", lstrip=True, normalized=False),
                      AddedToken("<pad_r>", rstrip=True, normalized=False)])
    qwen2.post_processor = processors.ByteLevel(trim_offsets=False)
    yield "qwen2", qwen2, {"bos_token": None, "eos_token": "<|im_end|>", "add_bos_token": False}

    starcoder = byte_level([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation(behavior="contiguous"),
                            pre_tokenizers.ByteLevel(add_prefix_space=False)])
    train(starcoder, rng, 420, alphabet)
    yield "starcoder", starcoder, {}

    deepseek = byte_level([cut(p) for p in PRETOKENIZERS["deepseek-llm"][:4]] + [pre_tokenizers.Digits(individual_digits=True), last])
    train(deepseek, rng, 420, alphabet)
    deepseek.add_special_tokens(SPECIAL)
    yield "deepseek", deepseek, {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "add_bos_token": True, "add_eos_token": True}

    phi4 = byte_level([cut(QWEN2, behavior="removed", invert=True), last])
    train(phi4, rng, 420, alphabet)
    yield "phi4", phi4, {}

    replace = normalizers.Replace(" ", MARK)
    legacy = sentencepiece(rng, normalizers.Sequence([normalizers.Prepend(MARK), replace]), None, strip=True)
    yield "spm_legacy", legacy, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}

    first = sentencepiece(rng, None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), strip=True)
    first.add_tokens([AddedToken("[INST]", normalized=False, special=True), AddedToken("<tool>", normalized=False)])
    yield "spm_first", first, {"bos_token": "<s>", "eos_token": "</s>"}

    always = sentencepiece(rng, None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True), strip=True)
    always.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    yield "spm_always", always, {"bos_token": "<s>", "eos_token": "</s>"}

    gemma = sentencepiece(rng, replace, pre_tokenizers.Split(" ", "merged_with_previous"), strip=False)
    gemma.add_tokens([AddedToken("<start_of_turn>", normalized=False, special=True), AddedToken("\n\n", normalized=False)])
    yield "spm_gemma", gemma, {"bos_token": "<s>", "eos_token": "</s>"}


def special_texts(tokenizer):
    names = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    texts = []
    for name in names:
        texts += [f"a{name}b", f" x {name} y ", f"{name}{name} the", f"the  {name}"]
    return texts


def main():
    folder = Path(sys.argv[1])
    rng = random.Random(SEED)
    texts = make_texts(rng)
    texts = [t for t in texts[::2] if len(t) < 200] + ["e\u0301 n\u0303 \u1112\u1161\u11ab \u212b", "the cat and the hat"]

    def write(path, value):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")

    for name, tokenizer, config in make_tokenizers(rng):
        spec = json.loads(tokenizer.to_str())
        if name == "qwen2":  # older files write merges as strings
            spec["model"]["merges"] = [" ".join(m) for m in spec["model"]["merges"]]
        write(folder / name / "tokenizer.json", spec)
        write(folder / name / "tokenizer_config.json", config)
        again = Tokenizer.from_str(json.dumps(spec))
        mine = [t for t in texts if not (name.startswith("spm") and MARK in t)] + special_texts(again)
        ids = [again.encode(t, add_special_tokens=False).ids for t in mine]
        special = again.encode("x").ids
        write(folder / f"{name}.json", {"texts": mine, "ids": ids, "with_special": special})
        print(name, len(spec["model"]["vocab"]), "tokens", len(mine), "texts")

    probes = PROBES + [p for steps in PRETOKENIZERS.values() for p in steps if len(p) > 12 or p in (r"[\r\n]", r"\s?\p{L}+")]
    probes = [p for p in dict.fromkeys(probes) if p not in ("byte-level", "punctuation") and "&&" not in p]
    pieces = [[[e - b for _, (b, e) in pre_tokenizers.Split(Regex(p), "isolated").pre_tokenize_str(t)] for t in texts] for p in probes]
    write(folder / "onig.json", {"texts": texts, "patterns": probes, "pieces": pieces})


if __name__ == "__main__":
    main()
