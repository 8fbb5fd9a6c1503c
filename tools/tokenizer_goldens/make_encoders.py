#!/usr/bin/env python3
"""Makes tests/data/tokenizers/encoders: small WordPiece and Unigram tokenizers like those of encoder models, and the
results of the reference with them.

NAME/tokenizer.json (and tokenizer_config.json) with NAME.json: ids, with and without special tokens, and the decoded text,
by Hugging Face `tokenizers`. spm.json: a GGUF-like specification of a Unigram model with SentencePiece's own table of
normalizations, and the ids that `sentencepiece` gives. normalizers.json: single normalizers of tokenizer.json on many texts.

    pip install tokenizers sentencepiece protobuf
    python3 tools/tokenizer_goldens/make_encoders.py tests/data/tokenizers/encoders

The output depends on SEED and on the packages only; the committed files came from tokenizers 0.23.3, sentencepiece 0.2.3.
"""
import base64
import io
import json
import random
import struct
import sys
import tempfile
import unicodedata
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from make import corpus, make_texts

SEED = 20261122
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MARK = "\u2581"
EXTRA = ["Résumé naïve ÀÉÎ İstanbul ẞ", "don't stop, can't! (really?) $5 + 3 = 8", "中文English混合 〇 𠀀", "a\u00adb\u200bc\u202ed",
         "tab\there\r\nnew\x0bline\x0cfeed\x85next", "word" * 40, "e\u0301\u0323x", "ﬁne ½ ① Ⅷ ﷺ", "\ufffd x \ufffd", "  spaces   and  more   ", "",
         " ", "Ⓐⓑ ㍿ ｶﾞ ﾊﾟ", "नमस्ते दुनिया क्षि", "👨‍👩‍👧‍👦🏳️‍🌈", "한국어 조선말 ᄒ", MARK + "x " + MARK, "hello" + MARK + "world", "~`^|<>=+$",
         "[CLS] hello [SEP] [MASK] x", "<s> a </s> <mask>b", "unseen☃☄★☆chars ☃", "The the THE", "１２３ 123 ١٢٣"]


def bert(rng, *, lowercase, **kwargs):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, **kwargs)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(corpus(rng), trainers.WordPieceTrainer(vocab_size=420, special_tokens=BERT, show_progress=False))
    tokenizer.decoder = decoders.WordPiece(cleanup=lowercase)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def charsmap(model_proto):
    return normalizers.Precompiled(bytes(model_proto.normalizer_spec.precompiled_charsmap))


def unigram(rng, specials, normalizer, pre_tokenizer, *, byte_fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.train_from_iterator(corpus(rng), trainers.UnigramTrainer(vocab_size=360, special_tokens=specials, unk_token="<unk>",
                                                                       show_progress=False))
    spec = json.loads(tokenizer.to_str())
    for piece in spec["model"]["vocab"]:  # as in files made from SentencePiece's, whose scores are floats
        piece[1] = struct.unpack("f", struct.pack("f", piece[1]))[0]
    if byte_fallback:
        vocab = spec["model"]["vocab"]
        at = len(specials)
        spec["model"]["vocab"] = vocab[:at] + [[f"<0x{b:02X}>", 0.0] for b in range(256)] + vocab[at:]
        spec["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def normalization_rules(texts):
    """The part of SentencePiece's nmt_nfkc that the texts need; the whole table is too large for a golden."""
    rules = {c: "" for c in "\x01\x07\x1b\x7f"} | {c: " " for c in "\t\n\r\u200b\ufeff\u2028\u2581"}
    for c in sorted(set("".join(texts))):
        if unicodedata.normalize("NFKC", c) != c:
            rules.setdefault(c, unicodedata.normalize("NFKC", c))
        if len(unicodedata.normalize("NFD", c)) > 1:
            rules.setdefault(unicodedata.normalize("NFD", c), unicodedata.normalize("NFKC", c))
    rules = {k: v for k, v in rules.items() if k != v}
    codes = lambda text: " ".join(f"{ord(c):X}" for c in text)
    return "".join(f"{codes(k)}\t{codes(v)}\n" for k, v in rules.items())


def train_sentencepiece(rng, texts):
    out = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write(normalization_rules(texts))
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([t for t in corpus(rng) if t.strip()]), model_writer=out, vocab_size=400, model_type="unigram",
            minloglevel=2, hard_vocab_limit=False, num_threads=1, normalization_rule_tsv=rules.name)
    proto = pb.ModelProto()
    proto.ParseFromString(out.getvalue())
    return out.getvalue(), proto


def make_tokenizers(rng, proto):
    """name: (tokenizer, tokenizer_config.json)"""
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    yield "bert_uncased", bert(rng, lowercase=True), names
    yield "bert_cased", bert(rng, lowercase=False), names
    accents = bert(rng, lowercase=True, strip_accents=False, handle_chinese_chars=False)
    accents.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    yield "bert_accents", accents, names

    xlmr = unigram(rng, ["<s>", "<pad>", "</s>", "<unk>"], normalizers.Sequence([charsmap(proto), normalizers.Replace(Regex(" {2,}"), " ")]),
                   pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]))
    xlmr.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    xlmr.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
                                                        special_tokens=[("<s>", 0), ("</s>", 2)])
    yield "xlm_roberta", xlmr, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

    t5 = unigram(rng, ["<pad>", "</s>", "<unk>"], normalizers.Sequence([charsmap(proto), normalizers.Strip(left=False, right=True),
                                                                       normalizers.Replace(Regex(" {2,}"), MARK)]),
                 pre_tokenizers.Metaspace(prepend_scheme="always", split=True))
    t5.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    yield "t5", t5, {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

    fallback = unigram(rng, ["<s>", "</s>", "<unk>"], normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]),
                       pre_tokenizers.Metaspace(prepend_scheme="first", split=False), byte_fallback=True)
    fallback.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    yield "unigram_bytes", fallback, {"bos_token": "<s>", "eos_token": "</s>"}


def sentencepiece_golden(model, proto, texts):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    types = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}  # SentencePiece's numbers are GGUF's
    spec = {"model": "t5", "tokens": [p.piece for p in proto.pieces], "scores": [p.score for p in proto.pieces],
            "token_types": [types[p.type] for p in proto.pieces], "unk": processor.unk_id(), "bos": processor.bos_id(),
            "eos": processor.eos_id(), "add_bos": False, "add_eos": True,
            "charsmap": base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode(),
            "remove_extra_whitespaces": proto.normalizer_spec.remove_extra_whitespaces}
    return {"spec": spec, "texts": texts, "ids": [processor.encode(t) for t in texts],
            "normalized": [processor.normalize(t) for t in texts]}


def normalizer_goldens(proto, texts):
    steps = {
        "NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD(),
        "Lowercase": normalizers.Lowercase(), "StripAccents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
        "Nmt": normalizers.Nmt(), "Replace": normalizers.Replace("the", "<\u00e9>"), "ReplaceRegex": normalizers.Replace(Regex(r"\s{2,}|[0-9]+"), "_"),
        "Prepend": normalizers.Prepend(MARK), "Strip": normalizers.Strip(), "StripLeft": normalizers.Strip(right=False),
        "Bert": normalizers.BertNormalizer(), "BertCased": normalizers.BertNormalizer(lowercase=False),
        "BertPlain": normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False),
        "Precompiled": charsmap(proto)}
    out = []
    for name, step in steps.items():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = step
        out.append({"name": name, "normalizer": json.loads(tokenizer.to_str())["normalizer"],
                    "normalized": [step.normalize_str(t) for t in texts]})
    return {"texts": texts, "steps": out}


def younger(c):
    """True if the character is newer than the reference's table of categories (Unicode 8)."""
    mark = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False).normalize_str(c) == ""
    punctuation = len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{c}b")) == 3
    category = unicodedata.category(c)
    return mark != (category == "Mn") or punctuation < category.startswith("P") or (category == "Cf" and
        normalizers.BertNormalizer(handle_chinese_chars=False).normalize_str(c) != "")


def special_texts(tokenizer):
    texts = []
    for token in tokenizer.get_added_tokens_decoder().values():
        texts += [f"a{token.content}b", f" x {token.content} y ", f"the  {token.content}"]
    return texts


def main():
    folder = Path(sys.argv[1])
    rng = random.Random(SEED)
    texts = [t for t in make_texts(rng) if len(t) < 300 and not any(younger(c) for c in t)] + EXTRA
    folder.mkdir(parents=True, exist_ok=True)

    def write(path, value):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")

    model, proto = train_sentencepiece(rng, texts)
    for name, tokenizer, config in make_tokenizers(rng, proto):
        write(folder / name / "tokenizer.json", json.loads(tokenizer.to_str()))
        write(folder / name / "tokenizer_config.json", config)
        mine = texts + special_texts(tokenizer)
        if name == "unigram_bytes":  # drops texts that lose the space of prepend_scheme "first"; ingot differs
            mine = [t for t in mine if not t or normalizers.Nmt().normalize_str(t[0])]
        encoded = [tokenizer.encode(t, add_special_tokens=False).ids for t in mine]
        write(folder / f"{name}.json", {
            "texts": mine, "ids": encoded, "with_special": [tokenizer.encode(t).ids for t in mine[:20]],
            "decoded": [tokenizer.decode(ids, skip_special_tokens=True) for ids in encoded]})
        print(name, tokenizer.get_vocab_size(), "tokens", len(mine), "texts")
    write(folder / "spm.json", sentencepiece_golden(model, proto, texts))
    write(folder / "normalizers.json", normalizer_goldens(proto, texts))


if __name__ == "__main__":
    main()
