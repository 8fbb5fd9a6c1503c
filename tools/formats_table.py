#!/usr/bin/env python3
"""Writes the tables of docs/formats.md: the oracle of each format's tests, the format's error, and its decoding speed.

  cmake --preset release && cmake --build build && tools/formats_table.py [--build build] [--no-speed]

The errors are measured by running test_quant and test_io, the speed by `ingot bench` on the shape of a 1B model. The
speed takes about ten minutes and 6 GB of memory. With --no-speed, the page keeps its old speeds.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "formats.md"
ORACLES = {"AFFINE": "mlx", "F8_E4M3": "mlx", "NVFP4_SCALED": "mlx", "Q1_0": "ggml", "Q2_0": "ggml"}  # others: the gguf package
LAYOUT_ORACLES = {"MLX": "mlx", "GPTQ": "NumPy, as documented", "AWQ": "NumPy, as documented", "INT": "compressed-tensors",
                  "FP8": "torch, compressed-tensors, ModelOpt", "MXFP4": "transformers, compressed-tensors", "NVFP4": "NumPy, as documented",
                  "ModelOpt": "ModelOpt"}


def properties(program, filter):
    """The recorded properties of each test that ran, in order."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        subprocess.run([program, f"--gtest_filter={filter}", f"--gtest_output=json:{out}"], check=True, stdout=subprocess.DEVNULL)
        suites = json.loads(out.read_text())["testsuites"]
    return [test for suite in suites for test in suite["testsuite"] if test["status"] == "RUN" and not test.get("failures")]


def oracle(name, table, otherwise):
    return next((value for key, value in table.items() if name.startswith(key)), otherwise)


def speed(ingot, name):
    done = subprocess.run([ingot, "bench", "--shape", "llama-3.2-1b", "--type", name, "-p", "0", "-n", "16", "-r", "3", "-o", "json"],
                          capture_output=True, text=True, check=True)
    return f"{statistics.median(json.loads(done.stdout)[0]['samples_ts']):.1f}"


def kept_speeds(text):
    table = text[text.index("<!-- formats -->"):text.index("<!-- end of formats -->")]
    return dict(re.findall(r"^\| (\w+) \|.*\| ([\d.]*) \|$", table, flags=re.M))


def format_table(build, speeds):
    lines = ["| format | oracle | compared | max error | bytes a weight | tok/s |", "|---|---|---|---|---|---|"]
    dense = [{"format": name, "max_error": "0", "n_compared": "every value", "bytes_per_weight": size}
             for name, size in (("F32", "4"), ("F16", "2"), ("BF16", "2"))]
    for t in dense + properties(build / "test_quant", "Formats/Decode.EqualsTheGolden/*"):
        name = t["format"]
        source = "IEEE 754, by pattern" if name in ("F32", "F16", "BF16") else oracle(name, ORACLES, "the gguf package")
        lines.append(f"| {name} | {source} | {t['n_compared']} | {t['max_error']} | {t['bytes_per_weight']} | {speeds.get(name, '')} |")
    return lines


def layout_table(build):
    lines = ["| layout | oracle | compared | max error | bytes a weight | becomes |", "|---|---|---|---|---|---|"]
    seen = {}
    for t in properties(build / "test_io", "Files/QuantizedGoldens.*"):
        seen.setdefault((t["layout"], t["becomes"]), []).append(t)
    for (layout, becomes), tests in sorted(seen.items()):
        error = max(float(t["max_error"]) for t in tests)
        lines.append(f"| {layout} | {oracle(layout, LAYOUT_ORACLES, '')} | {sum(int(t['n_compared']) for t in tests)} | {error:.2g} | "
                     f"{tests[0]['bytes_per_weight']} | {becomes} |")
    return lines


def replace(text, mark, lines):
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    assert text.count(begin) == 1 and text.count(end) == 1, f"docs/formats.md has no place for {mark}"
    return text[:text.index(begin) + len(begin)] + "\n".join(lines) + "\n" + text[text.index(end):]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--no-speed", action="store_true")
    args = parser.parse_args()
    text = PAGE.read_text()
    speeds = kept_speeds(text)
    if not args.no_speed:
        names = re.findall(r"^INGOT_FORMAT\((\w+)\)", (ROOT / "src" / "quant" / "formats.def").read_text(), flags=re.M)
        speeds = {name: speed(args.build / "ingot", name) for name in names}
    text = replace(text, "formats", format_table(args.build, speeds))
    text = replace(text, "layouts", layout_table(args.build))
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
