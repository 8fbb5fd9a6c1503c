#!/usr/bin/env python3
"""Measures ingot, llguidance and xgrammar with the same schemas over the same vocabulary, on one core, and prints a table.

  taskset -c 0 bench/grammar/peers.py cases.jsonl --tokenizer FOLDER --model model.gguf --ingot build/ingot

cases.jsonl has one line per case: {"schema": ..., "tests": [{"data": ..., "valid": true}]}. FOLDER has a tokenizer.json
and its configuration, with the same vocabulary as the model. Needs the wheels llguidance, xgrammar and transformers;
installs nothing. Each schema is compiled without a cache. Then the valid instances are fed token by token, as a model
would write them, with a mask before each token."""
import argparse
import importlib.metadata
import json
import re
import subprocess
import sys
import time

try:
    import llguidance.hf
    import llguidance.numpy
    import transformers
    import xgrammar
except ImportError as error:
    sys.exit(f"peers.py needs a wheel that is missing: {error.name}")


def table_row(name, compiles, masks, refused, rejected):
    def at(times, share):
        times = sorted(times)
        return times[int(share * (len(times) - 1))]
    return (f"| {name} | {at(compiles, .5) * 1e3:.2f} | {at(compiles, .99) * 1e3:.1f} | {at(masks, .5) * 1e6:.1f} | {sum(masks) / len(masks) * 1e6:.1f} "
            f"| {at(masks, .99) * 1e6:.1f} | {max(masks) * 1e6:.0f} | {refused} | {rejected} |")


def measure(name, cases, encode, compile_schema, start, fill, accept):
    compiles, masks, refused, rejected = [], [], 0, 0
    for case in cases:
        schema = json.dumps(case["schema"])
        try:
            begin = time.perf_counter()
            compiled = compile_schema(schema)
            compiles.append(time.perf_counter() - begin)
        except Exception:  # each library has its own error types
            refused += 1
            continue
        for test in (t for t in case["tests"] if t["valid"]):
            matcher = start(compiled)
            for token in encode(json.dumps(test["data"], ensure_ascii=False, separators=(",", ":"))):
                begin = time.perf_counter()
                fill(matcher)
                masks.append(time.perf_counter() - begin)
                if not accept(matcher, token):
                    rejected += 1
                    break
    return table_row(name, compiles, masks, refused, rejected)


def llguidance_row(cases, tokenizer, encode):
    vocabulary = llguidance.hf.from_tokenizer(tokenizer)
    bitmask = llguidance.numpy.allocate_token_bitmask(1, vocabulary.vocab_size)

    def compile_schema(schema):
        matcher = llguidance.LLMatcher(vocabulary, llguidance.LLMatcher.grammar_from_json_schema(schema), log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher
    return measure(f"llguidance {importlib.metadata.version('llguidance')}", cases, encode, compile_schema, lambda m: m.deep_copy(),
                   lambda m: llguidance.numpy.fill_next_token_bitmask(m, bitmask), lambda m, token: m.consume_token(token))


def xgrammar_row(cases, tokenizer, encode):
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer)
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    bitmask = xgrammar.allocate_token_bitmask(1, info.vocab_size)
    return measure(f"xgrammar {importlib.metadata.version('xgrammar')}", cases, encode, lambda schema: compiler.compile_json_schema(schema, strict_mode=False),
                   xgrammar.GrammarMatcher, lambda m: m.fill_next_token_bitmask(bitmask), lambda m, token: m.accept_token(token))


def ingot_row(program, file, model):
    out = subprocess.run([program, "bench", "grammar", file, "-m", model], check=True, capture_output=True, text=True).stdout
    n_refused, n_rejected = re.search(r"(\d+) of them refused; (\d+) valid", out).groups()
    times = {name: list(map(float, re.search(rf"^{name} .*p50 (\S+) us, mean (\S+) us, p99 (\S+) us, most (\S+) us", out, re.M).groups()))
             for name in ("compile", "mask")}
    compiles, masks = times["compile"], times["mask"]
    return (f"| ingot | {compiles[0] / 1e3:.2f} | {compiles[2] / 1e3:.1f} | {masks[0]:.1f} | {masks[1]:.1f} | {masks[2]:.1f} | {masks[3]:.0f} "
            f"| {n_refused} | {n_rejected} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases")
    parser.add_argument("--tokenizer", required=True, help="folder with tokenizer.json")
    parser.add_argument("--ingot", help="the program; left out: the peers alone")
    parser.add_argument("--model", help="GGUF file whose vocabulary ingot takes")
    args = parser.parse_args()
    if args.ingot and not args.model:
        parser.error("--ingot needs --model")
    with open(args.cases, encoding="utf-8") as file:
        cases = [json.loads(line) for line in file]
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.tokenizer)

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False)
    print("| | compile p50, ms | p99 | mask p50, us | mean | p99 | most | schemas refused | valid rejected |\n|---|---|---|---|---|---|---|---|---|")
    if args.ingot:
        print(ingot_row(args.ingot, args.cases, args.model), flush=True)
    print(llguidance_row(cases, tokenizer, encode), flush=True)
    print(xgrammar_row(cases, tokenizer, encode), flush=True)


if __name__ == "__main__":
    main()
