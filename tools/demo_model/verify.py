"""Checks that models/demo.gguf is the trained model and performs well in its domain, and writes the results that
ingot's tests expect.

  verify.py --model ../../models/demo.gguf --data ../../tests/data/demo [--run DIR]
Reads the model with the gguf package alone and runs it in NumPy, with Hugging Face tokenizers and jinja2 for templates.
Rewrites heldout.txt and expected.json in --data. With --run, also compares with the logits and the tokenizer that
training stored there.
"""

import argparse
import json
import pathlib
import random

import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

import chat
import corpus
import tasks
from numpy_llama import NumpyLlama, perplexity, read, tokenizer_of
from render import render

CONTEXT = 512
MIN_MARGIN = 0.25  # a greedy continuation ends before the first step that rounding could change
TEXTS = [
    "Hello, world!",
    "What is 7 + 5?",
    "Once upon a time",
    "  two  spaces\n\nand lines\r\n\ttab ",
    "12345 and 3.14",
    "I'm sure they'll say it's Zoë's café",
    "Привет, мир! 你好 こんにちは",
    "🐱🚀❤️ emoji",
    '{"name": "Anna", "age": 7}',
    "<tool_call>\n{}\n</tool_call>",
    "<|im_start|>user\nHi<|im_end|>\n",
    "a<|endoftext|>b",
    "",
    " ",
    "\u00a0\u200b\ufeff",
    "e\u0301 combining",
    "ALLCAPS lower MiXeD",
]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city"}},
            "required": ["city"],
        },
    },
}
LIGHT = {
    "type": "function",
    "function": {
        "name": "set_light",
        "description": "Turn the light in a room on or off.",
        "parameters": {
            "type": "object",
            "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
            "required": ["room", "on"],
        },
    },
}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}],
}


def user(text):
    return {"role": "user", "content": text}


CHATS = [
    ("sum", [user("What is 7 + 5?")], None),
    ("sum in words", [user("What is seven plus five?")], None),
    ("difference", [user("What is 3 - 11?")], None),
    ("name", [user("Who are you?")], None),
    ("system", [{"role": "system", "content": "Answer briefly."}, user("What is the capital of France?")], None),
    (
        "memory",
        [
            user("My name is Bramwell."),
            {"role": "assistant", "content": "Nice to meet you, Bramwell!"},
            user("What is my name?"),
        ],
        None,
    ),
    ("json", [user("Turn this into JSON: Clara Reed is 34 years old, lives in Oslo and works as a baker.")], None),
    (
        "json keys",
        [
            user(
                'Return a JSON object with the keys "age" and "name": Clara Reed is 34 years old, lives in Oslo and works as a baker.'
            )
        ],
        None,
    ),
    ("tool call", [user("What is the weather in Oslo?")], [WEATHER, LIGHT]),
    ("tool call, boolean", [user("Turn on the light in the kitchen.")], [WEATHER, LIGHT]),
    (
        "tool answer",
        [
            user("What is the weather in Oslo?"),
            CALL,
            {"role": "tool", "content": '{"temperature": -4, "sky": "snowy"}'},
        ],
        [WEATHER, LIGHT],
    ),
    ("emoji", [user("Show me an emoji of a cat.")], None),
    ("utf-8", [user("How do you say hello in Japanese?")], None),
    ("counting", [user("Count to 20.")], None),
    ("code", [user('Write "Hello, world!" in Python.')], None),
    ("story", [user("Tell me a story about a brave fox named Pip.")], None),
]
RAW = [
    "Once upon a time",
    "Question: What is the capital of France?\nAnswer:",
    "9 + 2 = 11\n7 + 5 =",
    "The capital of Italy is",
]


def template_of(source):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(source)


def check_template(template):
    """The corpus was written by render(); the template must write the same text."""
    rng = random.Random("ingot-template")
    for i in range(1000):
        messages, definitions = chat.conversation(rng)
        last = i % 2 == 0
        messages = messages[:-1] if last else messages
        if template.render(messages=messages, tools=definitions, add_generation_prompt=last) != render(
            messages, definitions, last
        ):
            raise SystemExit(f"template and render differ on {messages}")
    print("template: 1000 conversations as in the corpus")


def compare_with_training(model, meta, run):
    mine, theirs = tokenizer_of(meta), Tokenizer.from_file(str(run / "tokenizer.json"))
    for text in TEXTS + [corpus.heldout()[0]]:
        if mine.encode(text).ids != theirs.encode(text).ids:
            raise SystemExit(f"the file's tokenizer differs from the trained one on {text[:60]!r}")
    saved = np.load(run / "logits.npz")
    model.reset()
    error = np.abs(model.forward(saved["ids"]) - saved["logits"]).max()
    print(
        f"logits: largest difference from transformers with the unquantised weights {error:.3f} (Q8_0 rounding), tokenizers agree"
    )
    if error > 1.0:
        raise SystemExit("the file is not the trained model")


def sums_right(model, tokenizer):
    """Counts the sums whose whole greedy answer is right, for every a + b and a - b of 0 to 20."""
    right = total = 0
    for op in "+-":
        for a in range(21):
            for b in range(21):
                prompt = tokenizer.encode(render([user(f"What is {a} {op} {b}?")], None, True)).ids
                answer = tokenizer.encode(f"{a} {op} {b} = {tasks.result(op, a, b)}.<|im_end|>").ids
                model.reset()
                best = model.forward(prompt + answer[:-1])[len(prompt) - 1 :].argmax(-1)
                right += best.tolist() == answer
                total += 1
    return right, total


def continuation(model, tokenizer, name, prompt, n):
    ids = tokenizer.encode(prompt).ids
    stops = [tokenizer.token_to_id(t) for t in ("<|im_end|>", "<|endoftext|>")]
    steps = list(model.greedy(ids, n, stops))
    sure = next((i for i, (_, margin) in enumerate(steps) if margin < MIN_MARGIN), len(steps))
    tokens = [t for t, _ in steps]
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    print(f"--- {name}\n{text}")
    return {
        "name": name,
        "prompt": prompt,
        "prompt_ids": ids,
        "ids": tokens[:sure],
        "text": tokenizer.decode(tokens[:sure], skip_special_tokens=True),
        "finished": sure == len(steps) and tokens[-1] in stops,
        "smallest_margin": round(min([m for _, m in steps[:sure]], default=0), 3),
    }


def expectations(model, meta, tokenizer, template, text):
    ids = tokenizer.encode(text).ids
    value, means = perplexity(model, ids, CONTEXT)
    print(f"perplexity of the held-out text: {value:.5f} over {len(means)} windows of {CONTEXT}")
    right, total = sums_right(model, tokenizer)
    print(f"sums of 0 to 20: {right} of {total} right")
    chats = []
    for name, messages, definitions in CHATS:
        rendered = template.render(messages=messages, tools=definitions, add_generation_prompt=True)
        chats.append(
            {"messages": messages, "tools": definitions} | continuation(model, tokenizer, name, rendered, 96)
        )
    raw = [continuation(model, tokenizer, f"raw: {p.splitlines()[-1]}", p, 48) for p in RAW]
    model.reset()
    probe = ids[:32]
    last = model.forward(probe)[-1]
    top = np.argsort(-last)[:10]
    return {
        "made_by": "tools/demo_model/verify.py",
        "perplexity": {
            "file": "heldout.txt",
            "n_ctx": CONTEXT,
            "n_tokens": len(ids),
            "chunks": len(means),
            "value": round(value, 6),
            "first_chunk": round(float(np.exp(means[0])), 6),
        },
        "sums": {"right": right, "total": total},
        "tokenize": [{"text": t, "ids": tokenizer.encode(t).ids} for t in TEXTS],
        "logits": {"ids": probe, "top_ids": top.tolist(), "top_logits": [round(float(last[i]), 4) for i in top]},
        "chat": chats,
        "raw": raw,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--run", type=pathlib.Path)
    args = parser.parse_args()
    meta, tensors = read(args.model)
    model, tokenizer = NumpyLlama(meta, tensors), tokenizer_of(meta)
    template = template_of(meta["tokenizer.chat_template"])
    check_template(template)
    if args.run:
        compare_with_training(model, meta, args.run)
    text = corpus.heldout()[0]
    args.data.mkdir(parents=True, exist_ok=True)
    (args.data / "heldout.txt").write_text(text, encoding="utf-8")
    found = expectations(model, meta, tokenizer, template, text)
    (args.data / "expected.json").write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
