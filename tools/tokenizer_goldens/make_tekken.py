#!/usr/bin/env python3
"""Makes tests/data/tokenizers/tekken: a small tekken.json with Tekken's own pattern, and what mistral-common makes of
some texts with it. The vocabulary comes from byte-pair training on the texts themselves.

    pip install mistral-common==1.9.1 regex
    python tools/tokenizer_goldens/make_tekken.py [tests/data/tokenizers/tekken]
"""
import base64
import collections
import json
import pathlib
import sys

import regex
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
           r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
N_SPECIAL, N_MERGES = 20, 160
SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "<pad>"]
TEXTS = ["The quick brown fox jumps over the lazy dog. The dog sleeps, and the fox runs on.", "HTTPServer2 opens 1234567 files/paths\r\n\r\n  next",
         "def main():\n    return {\"key\": [1, 2, 3]}\n", "Über Größe: naïve façade — «déjà vu»", "你好，世界！ こんにちは世界", "Привет, мир! Приветствуем",
         "   leading and trailing   ", "emoji 👩‍👩‍👧‍👦 and 🇨🇭", "a", "", "\t\ttabs\n\n\n", "don't I'LL we've", "x" * 70]


def train(texts):
    words = collections.Counter(tuple(bytes([b]) for b in w.encode()) for t in texts for w in regex.findall(PATTERN, t))
    tokens = [bytes([b]) for b in range(256)]
    while len(tokens) < 256 + N_MERGES:
        pairs = collections.Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        left, right = min(pairs, key=lambda p: (-pairs[p], p))
        if left + right not in tokens:
            tokens.append(left + right)
        merged = collections.Counter()
        for word, n in words.items():
            out, i = [], 0
            while i < len(word):
                step = 2 if i + 1 < len(word) and (word[i], word[i + 1]) == (left, right) else 1
                out.append(b"".join(word[i:i + step]))
                i += step
            merged[tuple(out)] += n
        words = merged
    return tokens


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    tokens = train(TEXTS)
    vocab = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": t.decode(errors="ignore") or None} for i, t in enumerate(tokens)]
    special = [{"rank": i, "token_str": s, "is_control": True} for i, s in enumerate(SPECIAL)]
    file = {"config": {"pattern": PATTERN, "num_vocab_tokens": len(tokens), "default_vocab_size": len(tokens) + N_SPECIAL,
                       "default_num_special_tokens": N_SPECIAL, "version": "v11"}, "vocab": vocab, "special_tokens": special}
    (folder / "tekken.json").write_text(json.dumps(file))
    (folder / "config.json").write_text("{}\n")
    tokenizer = Tekkenizer.from_file(folder / "tekken.json")
    rows = [{"text": t, "ids": tokenizer.encode(t, bos=False, eos=False)} for t in TEXTS]
    (folder / "expected.json").write_text(json.dumps({"n_tokens": tokenizer.n_words, "texts": rows}) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/tokenizers/tekken"))
