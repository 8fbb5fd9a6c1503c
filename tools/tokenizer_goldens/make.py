#!/usr/bin/env python3
"""Makes tests/data/tokenizers: small vocabularies trained here, and the reference tokenizers' results for many texts.

Oracles: Hugging Face `tokenizers` for byte-level BPE and all pre-tokenizers, `sentencepiece` for SentencePiece BPE.
Run in an environment with both (pip install tokenizers sentencepiece): python3 make.py OUTPUT_FOLDER
The output depends on SEED and on the packages only; the committed files came from tokenizers 0.23.3 and
sentencepiece 0.2.3.
"""
import io
import json
import random
import sys
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SEED = 20240607

# ---------------------------------------------------------------- texts

WORDS = """
the of and a to in is you that it he was for on are as with his they at be this have from or one had by word but not
what all were we when your can said there use an each which she do how their if will up other about out many then
them these so some her would make like him into time has look two more write go see number no way could people my
than first water been call who oil its now find long down day did get come made may part
""".split()

CODE = ["for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n", "def f(x):\n    return x ** 2\n",
        "x = {'a': [1, 2.5, -3e8]}\n",
        "SELECT * FROM t WHERE id >= 10;\n", "<div class=\"x\">&nbsp;</div>\r\n", "https://example.org/a?b=c&d=%20\n"]

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", "  \t", "\n\r",
    ".,;:!?'\"()[]{}<>@#$%^&*-_=+/\\|~`",
    "áàâäãåçéèêëíñóöøúüßœ", "АБВГДежзийклмнопрстуфхцчшщъыьэюя", "αβγδεζηθΣΩ", "的一是不了人我在有他这中大来上国", "ぁあぃいカタカナー", "한국어조선말",
    "שלוםעולם", "مرحبابالعالم٠١٢٣", "नमस्तेदुनिया१२३", "สวัสดีชาวโลก", "កាន់តែពិសេស",
    "\u0300\u0301\u0302\u0308\u0323\u20dd", "\u200b\u200c\u200d\u2060\ufeff\ufe0f",
    "\u00a0\u1680\u2003\u2028\u2029\u3000\u180e\u0085",
    "😀🎉👩👨👧🏽🦙✅🇩🇪", "①②½²³Ⅷ", "ǅǈʰⁿªº", "\x00\x01\x07\x1b\x7f", "—–…“”‘’«»、。！？", "𝐀𝒷𝔠𐐷𒀀", "ſKÅﬁ",
]

TRICKY = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n \n", "\r\n", "\r\n\r\n", " \n", "a\n", "\na", "a \n b", "a  b",
    "a   b", "  a", "a  ",
    "Hello, world!", " Hello", "Hello ", "I'm you're he'd WE'LL don'T 'S 's' ''s", "'ſ 'ſs it'ſ", "a'b'c", "don’t", "1",
    "12", "123", "1234",
    "1234567", " 12 345", "3.14159", "1,000,000", "0x1F", "a1b2c3", "٣٤٥ 三四", "½²³", "x²+y²", "!!!", "!!!\n\n",
    "?!\r\n", "a/b//c\n/",
    "--==>>", "<|x|>", "e\u0301", "\u0301a", " \u0301", "क्षि", "नमस्ते दुनिया", "👨‍👩‍👧‍👦", "🏳️‍🌈🇩🇪🇫", "✅🦙", "สวัสดี",
    "中文English混合", "北京 2024年", "カタカナ・ひらがな",
    "한국어 ㄱㄴ", "שלום עולם", "مرحبا بالعالم", "\x00", "a\x00b", "\x00\x00 \x00", "\u00a0x", "x\u3000y", "\u2028\u2029",
    "\u200b", "\ufeffx", "\u180e \u180ea",
    "\ufffd", "a" * 300, " " * 300, "\n" * 100, "7" * 100, "ab" * 150, "." * 200, "中" * 100, "é" * 100, "😀" * 50,
    " x" * 50, "\t\t\tx\t\t",
    "if (x) {\r\n        y();\r\n    }\r\n", "    indented\n        more\n", "CamelCaseWordsHTTPServer",
    "SCREAMING_SNAKE", "ǅungla ǅ", "ÀÉÎ àéî", "ΣΊΣΥΦΟΣ",
    "IMGIMGABZ<sentinel:12>", "tail  ", "tail\t\n ", "a\u0085b", "x\u1680 y",
]
# For the expressions that count digits from the right, or spaces in powers of two; for the pre-tokenizers only.
COUNTED = [
    "1234567", "x12345678", "12345678x", "1234_5678", "1234\u00b2", "1234\u2460 5678", "\u00b21234567\u00b212\u00b2345", "\u216712345\u2167678", "123\u00b245",
    "\u0661\u0662\u0663\u0664\u0665", "12\u0301", "1234 567,890.1234567", "\u2460\u2461\u2462\u2463", "1" * 301, "2" * 300 + "a", "3" * 302 + " ",
    " " * 1023 + "x", " " * 512, " " * 513 + "1", " " * 7 + "7", " " * 6 + "\n" + " " * 5 + "(", "\t" * 9 + "y", "a" + " " * 77 + "\u3042", "\u3042\u30a2\ud55c\uae00\u0e44\u0e17\u0e22 12345",
]


def assigned(text):
    """Only characters that old and new Unicode tables treat alike (Python's table is the limit)."""
    return all(unicodedata.category(c) != "Cn" for c in text)


def make_texts(rng):
    texts = list(TRICKY)
    for _ in range(90):  # runs from a few alphabets
        chosen = rng.sample(ALPHABETS, rng.randint(1, 5))
        texts.append("".join(rng.choice(rng.choice(chosen)) for _ in range(rng.randint(1, 40))))
    for _ in range(40):  # something like prose
        gaps, cases = [" ", " ", " ", "  ", ", ", ".\n", "'s "], [str.lower, str.title, str.upper]
        words = rng.choices(WORDS, k=rng.randint(1, 9))
        texts.append("".join(rng.choice(gaps) + rng.choice(cases)(word) for word in words))
    for _ in range(40):  # any assigned characters
        limits = [0x80, 0x3000, 0x10000, 0x20000]
        text = "".join(chr(rng.randrange(rng.choice(limits))) for _ in range(rng.randint(1, 20)))
        texts.append("".join(c for c in text if not 0xD800 <= ord(c) <= 0xDFFF and assigned(c)))
    texts += CODE
    assert all(assigned(t) for t in texts)
    return list(dict.fromkeys(texts))


def corpus(rng):
    lines = []
    for _ in range(600):
        lines.append(" ".join(rng.choices(WORDS, k=rng.randint(3, 12))).capitalize() + rng.choice(".!?\n"))
        if rng.random() < 0.3:
            lines.append(rng.choice(CODE))
        if rng.random() < 0.3:
            lines.append(str(rng.randrange(10 ** rng.randint(1, 7))))
        if rng.random() < 0.3:
            lines.append("".join(rng.choice(rng.choice(ALPHABETS[:17])) for _ in range(12)))
        if rng.random() < 0.1:
            lines.append(rng.choice(["    ", "\n\n", "aaaaaaaa", "......", "        x"]))
    return lines


# ---------------------------------------------------------------- pre-tokenizers, as in the models' tokenizer.json

GPT2 = "byte-level"  # ByteLevel's own expression
DIGITS = "digits"
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LETTERS_O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|"
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|")
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CJK = "[一-龥\u0800-一가-\ud7ff]+"

CASED = (
    "[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽ"
    "ᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1F7Dᾀ-ᾴᾶ-ᾼ\u1FBEῂ-ῄῆ"
    "-ῌῐ-\u1FD3ῖ-\u1FDBῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212A-ℭℯ-ℴℹℼ-ℿⅅ"
    "-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-"
    "𐳲𑢠-𑣟𞤀-𞥃]"
)  # DeepSeek LLM's own list of cased letters

PRETOKENIZERS = {
    "gpt-2": [GPT2],
    "starcoder": [DIGITS, GPT2],
    "smollm": [DIGITS, GPT2],
    "llama-bpe": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES],
    "qwen2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES],
    "qwen35": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES],
    "tekken": [LETTERS_O200K % ("", "") + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES],
    "gpt-4o": [
        LETTERS_O200K % (CONTRACTIONS + "?", CONTRACTIONS + "?")
        + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
    ],
    "tiny_aya": [
        r"\d{1,3}(?=(?:\d{3})*\b)",
        LETTERS_O200K % (CONTRACTIONS + "?", CONTRACTIONS + "?")
        + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
    ],
    "afmoe": [
        r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",  # llama.cpp's own code, written as an expression
        "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
        + SPACES
    ],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "jais-2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
               + "|".join(r"\s{%s}(?!\S)" % n for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2")) + r"|\s{1}"],
    "laguna": [r"[^\n]+|[\n]+",
               CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES],
    "minicpm5": [r"\p{N}{1,3}",
                 CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES],
    "kimi-k2": [
        r"[\p{Han}]+|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        + CONTRACTIONS + "?|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        + CONTRACTIONS + "?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
    ],
    "deepseek-llm": [r"[\r\n]", r"\s?" + CASED + "+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK, DIGITS],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGITS],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
        r" ?[\p{P}\p{S}]+[\r\n]*|" + SPACES,
    ],
    "spark2_5": [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
        r" ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
        DIGITS,
    ],
    "ufakzeka": [r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES],
    "falcon": ["punctuation", GPT2, "[0-9][0-9][0-9]"],
    "bloom": [" ?[^(\\s|.,!?…。，、।۔،)]+"],
    "bailingmoe": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
        r"\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "seed-coder": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACES],
    "exaone-moe": [
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
}


def pretokenizer(name, byte_level):
    steps = []
    for step in PRETOKENIZERS[name]:
        if step == GPT2:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
        elif step == DIGITS:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        elif step == "punctuation":
            steps.append(pre_tokenizers.Punctuation(behavior="contiguous"))
        else:
            steps.append(pre_tokenizers.Split(Regex(step), behavior="isolated"))
    if byte_level and GPT2 not in PRETOKENIZERS[name]:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(steps)


def pretokenizer_goldens(texts):
    """For each name and text, the length of each piece in characters."""
    goldens = {}
    for name in PRETOKENIZERS:
        reference = pretokenizer(name, byte_level=False)
        pieces = [[end - begin for _, (begin, end) in reference.pre_tokenize_str(text)] for text in texts]
        assert all(sum(p) == len(t) for p, t in zip(pieces, texts)), name
        goldens[name] = pieces
    return goldens


# ---------------------------------------------------------------- byte-level BPE

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im|>"]
USER_DEFINED = ["<tool>", "<tool_call>", "<tool_", "call>", "   ", "ünïcode"]
SPECIAL_TEXTS = [
    "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|><|im_start|>", "x<|im_end|>", "<|im_start|", "<|im_<|im_start|>",
    "<|im|>x<|im", "<|endoftext|>a",
    "<tool>", "<tool_call>", "<tool_call", "<tool_<tool>", "a<tool_call>b</tool_call>", "<tool_calls>", "call>call>",
    "a   b", "a    b", "      ",
    "ünïcode ünïcode", "ü<tool>ï", "<|im_start|>   <tool>   <|im_end|>", "<s></s><unk>", "<0x41>", "[INST] x [/INST]",
]


def bpe_fixture(pre, rng, texts, whole_words, vocab_size=620):
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole_words))
    tokenizer.pre_tokenizer = pretokenizer(pre, byte_level=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus(rng), trainer)
    if whole_words:  # a word that the vocabulary's merges cannot make
        saved = json.loads(tokenizer.to_str())
        for word in ["Ġxylophone", "zyzzyva", "Ġ123"]:
            saved["model"]["vocab"][word] = len(saved["model"]["vocab"])
        tokenizer = Tokenizer.from_str(json.dumps(saved))
    n_plain = tokenizer.get_vocab_size()
    tokenizer.add_special_tokens(CONTROL)
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in USER_DEFINED])
    saved = json.loads(tokenizer.to_str())
    n_tokens = tokenizer.get_vocab_size()
    types = [1 if i < n_plain else 3 if i < n_plain + len(CONTROL) else 4 for i in range(n_tokens)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in saved["model"]["merges"]]
    texts = texts + SPECIAL_TEXTS + [" xylophone zyzzyva xylophones", "a 123 1234"]
    plain, special = [], []
    for text in texts:
        tokenizer.encode_special_tokens = True  # control tokens in the text are text
        plain.append(tokenizer.encode(text, add_special_tokens=False).ids)
    for text in SPECIAL_TEXTS:
        tokenizer.encode_special_tokens = False
        special.append(tokenizer.encode(text, add_special_tokens=False).ids)
    return {
        "spec": {"model": "gpt2", "pre": pre, "tokens": [tokenizer.id_to_token(i) for i in range(n_tokens)],
                 "token_types": types, "merges": merges, "bos": n_plain, "eos": n_plain},
        "texts": texts, "ids": plain, "special_texts": SPECIAL_TEXTS, "special_ids": special,
    }


def bpe_with_gaps():
    """A vocabulary that lacks most bytes, as those of SmolLM2 and StarCoder lack some; tests texts with missing
    bytes."""
    tokens = ["<|endoftext|>", *"abcdefghĠĊ", "Ã", "©", "ab", "Ġa", "Ã©", "abc"]
    merges = ["a b", "Ġ a", "Ã ©", "ab c"]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split()) for m in merges]))
    tokenizer.pre_tokenizer = pretokenizer("gpt-2", byte_level=True)
    texts = ["\x14", "", "abc", "a\x14b", "ab\x14c abc", "é", "aéb", "ê", "\x00\x01", "xyz", "a x b", "\nab\n", "世界 a", "\u00a9"]
    return {"tokens": tokens, "merges": merges, "texts": texts, "ids": [tokenizer.encode(t).ids for t in texts]}


# ---------------------------------------------------------------- SentencePiece BPE

def spm_fixture(rng, texts, add_space_prefix, user_defined):
    import sentencepiece  # imported here, so that make_hf.py needs tokenizers only

    model = io.BytesIO()
    lines = [line.replace("\n", " ") for line in corpus(rng)] + ["    x", "        y"] * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=820, byte_fallback=True,
        normalization_rule_name="identity", add_dummy_prefix=add_space_prefix,
        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, split_digits=True, character_coverage=0.99,
        user_defined_symbols=user_defined, num_threads=1, minloglevel=2)
    reference = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(reference.get_piece_size())
    types = [2 if reference.is_unknown(i) else 3 if reference.is_control(i) else 6 if reference.is_byte(i) else
             4 if reference.id_to_piece(i) in user_defined else 1 for i in ids]
    texts = texts + SPECIAL_TEXTS + [" xylophone", "\u2581", "\u2581the", "the\u2581people", " \u2581 \u2581\u2581a\u2581"]
    return {
        "spec": {"model": "llama", "pre": "default", "tokens": [reference.id_to_piece(i) for i in ids],
                 "token_types": types, "scores": [reference.get_score(i) for i in ids],
                 "bos": reference.bos_id(), "eos": reference.eos_id(), "unk": reference.unk_id(),
                 "add_bos": True, "add_eos": False, "add_space_prefix": add_space_prefix},
        "texts": texts, "ids": [reference.encode(t) for t in texts],
    }


def main():
    folder = Path(sys.argv[1])
    texts = make_texts(random.Random(SEED))

    def write(name, value):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        (folder / f"{name}.json").write_text(text + "\n")
        print(name, len(text), "bytes")

    counted = list(dict.fromkeys(texts + COUNTED))
    assert all(assigned(t) for t in counted)
    write("pretokenizers", {"texts": counted, "pieces": pretokenizer_goldens(counted)})
    write("bpe_gpt2", bpe_fixture("gpt-2", random.Random(SEED + 1), texts, whole_words=False))
    write("bpe_llama3", bpe_fixture("llama-bpe", random.Random(SEED + 2), texts, whole_words=True))
    write("bpe_qwen2", bpe_fixture("qwen2", random.Random(SEED + 3), texts, whole_words=False))
    write("bpe_gaps", bpe_with_gaps())
    write("spm_llama", spm_fixture(random.Random(SEED + 4), texts, True, []))
    write("spm_gemma", spm_fixture(random.Random(SEED + 5), texts, False, ["<tool>", "<tool_call>", "call>"]))


if __name__ == "__main__":
    main()
