#!/usr/bin/env python3
"""Beams of Hugging Face transformers with tiny models of tests/data/hf -> tests/data/beams.json.

Each case is a search: its parameters, and the texts found (without the prompt) with their scores. The searches of a
model run in float64 too, and must find the same. Some tokens that the model likes are end tokens. In cases with a
grammar, a text has `least` to `most` lower-case letters, token by token, then an end token.

    pip install -r tools/goldens/requirements.txt
    python tools/goldens/make_beams.py [-o tests/data/beams.json]
"""
import argparse
import json
import pathlib

import torch
import transformers

DATA = pathlib.Path(__file__).parents[2] / "tests/data"
MODELS = ["llama", "gemma3", "mamba2", "qwen35", "deepseek2_lite"]
N_NEW = 20
# n_beams, length_penalty, early_stopping, texts, repetition_penalty, [least, most] letters
CASES = [(3, 1.0, False, 1, 1.0, None), (4, 0.0, "never", 4, 1.0, None), (4, 2.0, "never", 2, 1.0, None),
         (2, 1.0, True, 2, 1.0, None), (5, -1.0, False, 3, 1.0, None), (3, 1.0, True, 3, 1.3, None),
         (4, 1.0, False, 4, 1.0, [3, 6])]
LETTERS = [ord(c) - 33 for c in "abcdefghijklmnopqrstuvwxyz"]  # ids of single letters: GPT-2's order of bytes


def search(model, prompt, ends, case):
    n_beams, length_penalty, early, n_texts, penalty, letters = case

    def allowed(_, ids):
        n = len(ids) - len(prompt)
        texts = [token for token in LETTERS if token not in ends] if n < letters[1] else []
        return texts + (ends if n >= letters[0] else [])

    with torch.no_grad():
        out = model.generate(
            torch.tensor([prompt]), num_beams=n_beams, length_penalty=length_penalty, early_stopping=early,
            num_return_sequences=n_texts, max_new_tokens=N_NEW, eos_token_id=ends, pad_token_id=0, do_sample=False,
            repetition_penalty=penalty, prefix_allowed_tokens_fn=allowed if letters else None,
            return_dict_in_generate=True, output_scores=True)
    texts = []
    for row in out.sequences[:, len(prompt):].tolist():
        end = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
        texts.append(row[:end])
    return texts, [round(float(score), 5) for score in out.sequences_scores]


def likely_ends(model, prompt):
    """Tokens of plain searches, so that they end texts of the searches that follow."""
    texts, _ = search(model, prompt, [model.config.vocab_size - 1], (4, 1.0, False, 4, 1.0, None))
    return sorted({text[7] for text in texts} | {texts[0][12]} | {model.config.vocab_size - 1})


def load(name, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(DATA / "hf" / name, dtype=dtype)
    model.set_experts_implementation("eager")
    model.generation_config = transformers.GenerationConfig()
    return model.eval()


def cases_of(name):
    model, exact = load(name, torch.float32), load(name, torch.float64)
    golden = json.loads((DATA / "models" / f"{name}.json").read_text())
    prompt = golden["tokens"]
    ends = likely_ends(model, prompt)
    for case in CASES:
        texts, scores = search(model, prompt, ends, case)
        assert texts == search(exact, prompt, ends, case)[0], (name, case)
        keys = ("n_beams", "length_penalty", "early_stopping", "n_texts", "repetition_penalty", "letters")
        yield {"model": name, "ends": ends, **dict(zip(keys, case)), "texts": texts, "scores": scores}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=pathlib.Path, default=DATA / "beams.json")
    args = parser.parse_args()
    lines = [json.dumps(case) for name in MODELS for case in cases_of(name)]
    args.output.write_text("[" + ",\n".join(lines) + "]\n")


if __name__ == "__main__":
    main()
