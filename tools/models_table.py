#!/usr/bin/env python3
"""Writes the tables of docs/models.md: each tiny model of tests/data with a description and the error relative to the
reference, and the number of test cases for each kind of tokenizer and template.

  cmake --preset release -DINGOT_TESTS=ON && cmake --build build --target test_model test_text test_io && tools/models_table.py [--build build]

The errors are measured by running test_model.
"""
import argparse
import json
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "models.md"


def recorded(program, filter):
    """{model: properties} of the tests that passed."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        subprocess.run([program, f"--gtest_filter={filter}", f"--gtest_output=json:{out}"], check=True, stdout=subprocess.DEVNULL)
        suites = json.loads(out.read_text())["testsuites"]
    tests = [test for suite in suites for test in suite["testsuite"] if not test.get("failures")]
    return {test["name"].split("/")[-1]: test for test in tests}


def types_of(golden):
    return " ".join(dict.fromkeys(golden["types"].values()))


def rows(program):
    gguf = recorded(program, "Models/Goldens.RefLogitsEqualTransformers/*")
    hf = recorded(program, "Models/HfGoldens.LogitsEqualTransformers/*")
    cpu = recorded(program, "Models/Goldens.CpuLogitsAreNearTransformers/*")
    int8 = recorded(program, "Models/RoundedGoldens.Int8ActivationsExplainTheRest/*")
    for name, test in sorted(gguf.items(), key=lambda item: (item[1]["architecture"], item[0])):
        golden = json.loads((ROOT / "tests/data/models" / f"{name}.json").read_text())
        directory = hf.get(name, {})
        yield [name, test["architecture"], types_of(golden), test["error"], cpu[name].get("error") or int8.get(name, {}).get("error", ""),
               directory.get("architecture", ""), directory.get("error", "")]


def encoder_rows(program):
    """A row for both forms of each encoder: the GGUF file and the directory."""
    ref = recorded(program, "Models/Encoders.RefEqualsTransformers/*")
    cpu = recorded(program, "Models/Encoders.CpuEqualsRef/*")
    texts = recorded(program, "Models/Encoders.TextsEqualSentenceTransformers/*")
    for name in sorted({key.rsplit("_", 1)[0] for key in ref}):
        forms = [f"{name}_gguf", f"{name}_directory"]
        yield [name, ref[forms[0]]["pooling"], *(ref[f]["error"] for f in forms), *(cpu[f]["error"] for f in forms),
               *(texts[f]["cosine"] for f in forms)]


def ranker_rows(program):
    scores = recorded(program, "Models/Rankers.ScoresEqualSentenceTransformers/*")
    for name in sorted({key.rsplit("_", 1)[0] for key in scores}):
        forms = [scores.get(f"{name}_{form}", {}) for form in ("gguf", "directory")]
        yield [name, *(f.get("ref", "") for f in forms), *(f.get("cpu", "") for f in forms)]


# what is compared, program, tests, oracle
COMPARED = [
    ("byte-level BPE and SentencePiece, from GGUF's keys", "test_text", "Vocabularies/TokenizerGolden.EncodesLikeTheReference/*", "tokenizers, sentencepiece"),
    ("`tokenizer.ggml.pre`: where words are cut", "test_text", "Pretokenizer.CutsWhereHuggingFaceCuts", "tokenizers"),
    ("`tokenizer.json`: BPE", "test_io", "Families/HfTokenizerGolden.EncodesLikeTheReference/*", "tokenizers"),
    ("`tokenizer.json`: WordPiece and Unigram", "test_io", "Families/HfEncoderTokenizer.EncodesAndDecodesAsTheReference/*", "tokenizers"),
    ("`tokenizer.json`: normalizers", "test_io", "HfNormalizer.EveryStepEqualsTheReference", "tokenizers"),
    ("chat templates over conversations", "test_text", "TemplateGoldens.ChatTemplates", "jinja2"),
    ("Jinja: expressions and statements", "test_text", "TemplateGoldens.Snippets", "jinja2"),
]


def compared_rows(build):
    for what, program, filter, oracle in COMPARED:
        tests = recorded(build / program, filter)
        yield [what, str(len(tests)), str(sum(int(test["compared"]) for test in tests.values())), oracle]


def put(page, name, head, rows):
    table = [head, ["---"] * len(head), *rows]
    text = "\n".join("| " + " | ".join(row) + " |" for row in table)
    page, n = re.subn(rf"(?s)(<!-- {name} -->\n).*?(\n<!-- end -->)", lambda m: m[1] + text + m[2], page)
    assert n == 1, name
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    args = parser.parse_args()
    program = args.build / "test_model"
    page = PAGE.read_text()
    page = put(page, "table", ["model", "GGUF architecture", "types", "ref", "cpu", "model_type", "ref, directory"], rows(program))
    page = put(page, "encoders", ["model", "pooling", "ref, GGUF", "ref, directory", "cpu, GGUF", "cpu, directory", "1 - cosine, GGUF", "1 - cosine, directory"],
               encoder_rows(program))
    page = put(page, "rankers", ["model", "ref, GGUF", "ref, directory", "cpu, GGUF", "cpu, directory"], ranker_rows(program))
    page = put(page, "compared", ["what", "tests", "cases compared", "with"], compared_rows(args.build))
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
