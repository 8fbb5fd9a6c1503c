#!/usr/bin/env python3
"""Writes the table of docs/models.md: each tiny model of tests/data, what it is, and how far its logits are from transformers'.

  cmake --preset release -DINGOT_TESTS=ON && cmake --build build --target test_model && tools/models_table.py [--build build]

The errors are what test_model measured just now.
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
    for name, test in sorted(gguf.items(), key=lambda item: (item[1]["architecture"], item[0])):
        golden = json.loads((ROOT / "tests/data/models" / f"{name}.json").read_text())
        directory = hf.get(name, {})
        yield [name, test["architecture"], types_of(golden), test["error"], cpu[name].get("error", ""),
               directory.get("architecture", ""), directory.get("error", "")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    args = parser.parse_args()
    head = ["model", "GGUF architecture", "types", "ref", "cpu", "model_type", "ref, directory"]
    table = [head, ["---"] * len(head), *rows(args.build / "test_model")]
    text = "\n".join("| " + " | ".join(row) + " |" for row in table)
    page = PAGE.read_text()
    page = re.sub(r"(?s)(<!-- table -->\n).*(\n<!-- end -->)", lambda m: m[1] + text + m[2], page)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
