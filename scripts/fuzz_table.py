#!/usr/bin/env python3
"""Updates the table of fuzz runs in SECURITY.md. After `make fuzz`, `scripts/fuzz_table.py build-fuzz` reads the
targets' logs and rewrites the table. A target without a log keeps its row, so that some targets can run longer than
others."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- made by scripts/fuzz_table.py -->", "<!-- end of the table -->"
READS = {
    "gguf": "GGUF files, and what is written from them",
    "safetensors": "safetensors files",
    "arch": "files of architectures (`--arch`)",
    "hf_config": "`config.json`",
    "hf_tokenizer": "`tokenizer.json`",
    "hub": "answers of the Hugging Face Hub",
    "quantized": "quantized Hugging Face and MLX checkpoints",
    "tokenizer": "texts, and specifications of tokenizers",
    "template": "chat templates, and messages for them",
    "prefix": "files of saved slots",
    "images": "images: JPEG, PNG, WebP, GIF, HEIF",
    "speech": "recordings, model files of CTranslate2 and whisper.cpp, forms",
    "realtime": "frames of a WebSocket, and messages of `/v1/realtime`",
    "calls": "answers of models: reasoning and tool calls",
    "gbnf": "grammars in GBNF",
    "lark": "grammars in Lark",
    "regex": "regular expressions",
    "schema": "JSON Schemas",
}


def figure(log, name):
    found = re.findall(rf"{name}:\s*(\d+)", log)
    return int(found[-1]) if found else None


def row(build, name, old):
    path = build / f"fuzz_{name}.log"
    if not path.exists():
        for line in old.splitlines():
            if line.startswith(f"| `{name}` |"):
                return line
        sys.exit(f"fuzz_table: {path} is missing: run make fuzz first")
    log = path.read_text(errors="replace")
    runs = figure(log, "number_of_executed_units")
    covered = re.findall(r"cov: (\d+)", log)
    seconds = re.findall(r"Done \d+ runs in (\d+) second", log)
    if runs is None or not covered or not seconds:
        sys.exit(f"fuzz_table: {path} does not end as libFuzzer's logs do")
    return f"| `{name}` | {READS[name]} | {runs:,} | {int(seconds[-1]):,} | {int(covered[-1]):,} |"


def table(build, old):
    head = ["| target | reads | executions | seconds | edges covered |", "|---|---|---|---|---|"]
    return "\n".join(head + [row(build, name, old) for name in READS])


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: scripts/fuzz_table.py BUILD [ROOT]")
    build, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT
    page = root / "SECURITY.md"
    text = page.read_text()
    if BEGIN not in text:
        text = text.rstrip("\n") + f"\n\n## What the fuzz targets have run\n\n{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN, 1)
    old, after = rest.split(END, 1)
    page.write_text(before + BEGIN + "\n" + table(build, old) + "\n" + END + after)


if __name__ == "__main__":
    main()
