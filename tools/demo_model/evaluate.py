"""Tests a trained demo model on the machine that trained it, and prints the score of each skill.

  evaluate.py --run DIR       DIR holds config.json, weights-N.npz and tokenizer.json
Also compares the logits with Hugging Face's Llama and leaves some of them in DIR/logits.npz for verify.py.
"""

import argparse
import json
import pathlib
import random

import numpy as np
import torch
from tokenizers import Tokenizer

import chat
import corpus
import tasks
import tools
from json_tasks import json_extraction
from model import Config, Llama
from render import render, render_call

STORY_PROMPTS = [
    "Tell me a story.",
    "Tell me a story about a brave fox named Pip.",
    "Write a short story about a shy dragon and a silver key.",
    "Tell me a bedtime story about a robot.",
    "Can you tell me a story about honesty?",
    "Tell me a story about a girl called Zarbella with a moral.",
]


def load(run, device):
    config = Config(**json.loads((run / "config.json").read_text()))
    model = Llama(config).to(device).eval()
    state = {}
    for path in sorted(run.glob("weights-*.npz")):
        state.update({k: torch.from_numpy(v) for k, v in np.load(path).items()})
    model.load_state_dict(state)
    return model, Tokenizer.from_file(str(run / "tokenizer.json"))


@torch.no_grad()
def generate(model, tokenizer, prompts, max_new, temperature=0.0, rows=256):
    """Continues each prompt (text with special tokens) until <|im_end|> or <|endoftext|>; returns the texts."""
    stops = torch.tensor([tokenizer.token_to_id(t) for t in ("<|im_end|>", "<|endoftext|>")], device=model.cos.device)
    out = []
    for first in range(0, len(prompts), rows):
        ids = [tokenizer.encode(p).ids for p in prompts[first : first + rows]]
        lengths = torch.tensor([len(i) for i in ids], device=stops.device)
        start = lengths.clone()
        table = torch.zeros(len(ids), int(lengths.max()) + max_new, dtype=torch.long, device=stops.device)
        for row, i in zip(table, ids):
            row[: len(i)] = torch.tensor(i)
        alive = torch.ones(len(ids), dtype=torch.bool, device=stops.device)
        every = torch.arange(len(ids), device=stops.device)
        for _ in range(max_new):
            logits = model(table[:, : int(lengths.max())])[every, lengths - 1]
            token = (
                torch.multinomial((logits / temperature).softmax(-1), 1)[:, 0] if temperature else logits.argmax(-1)
            )
            alive &= ~torch.isin(token, stops)
            if not alive.any():
                break
            table[every[alive], lengths[alive]] = token[alive]
            lengths += alive
        out += [
            tokenizer.decode(table[i, start[i] : lengths[i]].tolist(), skip_special_tokens=False)
            for i in range(len(ids))
        ]
    return out


def ask(*texts, system=None):
    roles = ["user", "assistant"]
    messages = [{"role": "system", "content": system}] if system else []
    return render(
        messages + [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)], add_generation_prompt=True
    )


def score(name, model, tokenizer, cases, max_new):
    answers = generate(model, tokenizer, [p for p, _ in cases], max_new)
    wrong = [(p, want, got) for (p, want), got in zip(cases, answers) if got != want]
    print(f"{name}: {len(cases) - len(wrong)} of {len(cases)} right ({100 - 100 * len(wrong) / len(cases):.2f} %)")
    for prompt, want, got in wrong[:4]:
        print(f"   asked {prompt[-150:]!r}\n   want {want!r}\n   got  {got!r}")
    return answers


def skill_cases(rng):
    for op, top in (("+", 20), ("-", 20), ("x", 12)):
        yield f"sums {op}", [
            (ask(f"What is {a} {op} {b}?"), f"{a} {op} {b} = {tasks.result(op, a, b)}.")
            for a in range(top + 1)
            for b in range(top + 1)
        ], 16
    pairs = [(rng.randrange(100), rng.randrange(100)) for _ in range(500)]
    yield "sums to 99", [(ask(f"What is {a} + {b}?"), f"{a} + {b} = {a + b}.") for a, b in pairs], 16
    yield "sums, other words", [(ask(q), a) for q, a, _ in (tasks.arithmetic(rng) for _ in range(500))], 20
    for name, maker in (
        ("word problems", tasks.word_problem),
        ("three terms", tasks.three_terms),
        ("compare", tasks.compare),
        ("counting", tasks.counting),
        ("sorting", tasks.sorting),
        ("sequence", tasks.sequence),
        ("spelling", tasks.spelling),
    ):
        yield name, [(ask(q), a) for q, a, _ in (maker(rng) for _ in range(200))], 70
    yield "facts", [
        (
            ask(chat.TEXT.expand(rng, rng.choice(t["q"]), {"k": k, "v": v})),
            chat.TEXT.expand(rng, t["a"][0], {"k": k, "v": v}),
        )
        for t in chat.FACTS
        for k, v in t["facts"]
    ], 60
    yield "facts, briefly", [
        (ask(q, system="Answer briefly."), s)
        for q, _, s in (tasks.arithmetic(rng) if i % 2 else chat.fact(rng)[0] for i in range(300))
    ], 60
    cases = [
        (q, a)
        for q, a, _ in (json_extraction(rng) for _ in range(800))
        if not q.startswith(("Give me a JSON", "Make up", "Write an example"))
    ]
    yield "JSON", [(ask(q), a) for q, a in cases], 110
    cases = []
    for _ in range(300):
        turns = chat.memory(rng)
        cases.append((ask(*[t for q, a, _ in turns[:-1] for t in (q, a)], turns[-1][0]), turns[-1][1]))
    yield "memory", cases, 30
    calls, finals = [], []
    for _ in range(500):
        messages, definitions = tools.tool_conversation(rng, lambda r: ("What is 2 + 2?", "2 + 2 = 4."))
        calls.append(
            (
                render(messages[:1], definitions, True),
                "\n".join(map(render_call, messages[1].get("tool_calls", []))) or messages[1]["content"],
            )
        )
        if len(messages) > 3 and messages[2]["role"] == "tool" and messages[3]["role"] == "assistant":
            finals.append((render(messages[:3], definitions, True), messages[3]["content"]))
    yield "tool calls", calls, 100
    yield "tool answers", finals, 60


@torch.no_grad()
def perplexity(model, tokenizer, text, context=512):
    """llama.cpp's definition: windows without overlap; the second half of each is scored."""
    ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids, device=model.cos.device)
    losses = []
    for i in range(len(ids) // context):
        window = ids[i * context : (i + 1) * context]
        logits = model(window[None])[0, context // 2 : -1].double()
        losses.append(torch.nn.functional.cross_entropy(logits, window[context // 2 + 1 :], reduction="none"))
    return torch.cat(losses).mean().exp().item()


@torch.no_grad()
def compare_with_transformers(model, tokenizer, run):
    from transformers import LlamaConfig, LlamaForCausalLM

    c = model.config
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.dim,
            intermediate_size=c.ffn_dim,
            num_hidden_layers=c.n_layers,
            num_attention_heads=c.n_heads,
            num_key_value_heads=c.n_kv_heads,
            max_position_embeddings=c.context,
            rms_norm_eps=c.norm_eps,
            rope_theta=c.rope_theta,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
            tie_word_embeddings=True,
        )
    )
    theirs.load_state_dict(model.state_dict(), strict=False)
    theirs = theirs.float().eval()
    ids = torch.tensor([tokenizer.encode(corpus.heldout()[0][:1500]).ids[:256]])
    ours, want = model.cpu()(ids)[0], theirs(ids).logits[0]
    print(
        f"against transformers: max |difference| of the logits {(ours - want).abs().max():.2e}, largest logit {want.abs().max():.1f}"
    )
    np.savez(run / "logits.npz", ids=ids[0].numpy(), logits=want.numpy())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=pathlib.Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, tokenizer = load(args.run, device)
    print(f"held-out perplexity {perplexity(model, tokenizer, corpus.heldout()[0]):.4f}")
    for name, cases, max_new in skill_cases(random.Random("ingot-skills")):
        score(name, model, tokenizer, cases, max_new)
    for prompt, text in zip(STORY_PROMPTS, generate(model, tokenizer, [ask(p) for p in STORY_PROMPTS], 500, 0.8)):
        print(f"### {prompt}\n{text}")
    for text in generate(
        model,
        tokenizer,
        ["Once upon a time", "The little robot", "Question: What is the capital of France?\nAnswer:"],
        400,
    ):
        print(f"### raw\n{text}")
    compare_with_transformers(model, tokenizer, args.run)


if __name__ == "__main__":
    main()
