"""Headlines on speed follow from docs/data: in the pages as they are, and in pages made from drawn data. The expected
figures are computed here with other code than that of scripts/docs/charts.py."""

import csv
import os
import pathlib
import random
import re
import shutil
import sys

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
SEED = int(os.environ.get("INGOT_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
sys.path.insert(0, str(SOURCE / "scripts" / "docs"))
import charts  # noqa: E402

CORES = {"zen5": "two Zen 5 cores", "zen4": "two Zen 4 cores", "xeon": "two cores of a Xeon with AMX"}


def rows(root, name):
    with open(root / "docs" / "data" / f"{name}.csv") as file:
        return list(csv.DictReader(file))


def ranges(root, name):
    """The least and the greatest factor of a core's table, for prompts and for answers."""
    found = []
    for work in ("prefill", "decode"):
        factors = []
        for row in rows(root, name):
            others = [float(v) for key, v in row.items() if key in (f"{work} llama.cpp", f"{work} ik_llama.cpp")]
            factors.append(min(float(row[f"{work} ingot"]) / other for other in others))
        found.append(f"{min(factors):.2f} to {max(factors):.2f}")
    return found


def shares(root, work):
    row = next(row for row in rows(root, "h200") if row["work"] == work)
    return [f"{float(row[who]) / float(row['roofline']):.0%}".replace("%", " %") for who in ("ingot", "llama.cpp")]


def check(root, page):
    """Each figure of the headlines is in the data, under the name of its core."""
    text = " ".join(page.split())
    sentences = re.split(r"(?<=\.) (?=[A-Z0-9])", text)
    named = {name: next(s for s in sentences if core in s) for name, core in CORES.items()}
    for name, core in CORES.items():
        prompts, answers = ranges(root, name)
        if name == "zen5":
            assert f"On {core}, ingot reads prompts {prompts} times as fast" in named[name]
            assert f"writes answers {answers} times as fast" in named[name]
        else:
            assert f"{prompts} and {answers} on {core}" in named[name]
    decode, prefill = shares(root, "decode, 8b BF16"), shares(root, "prefill 2048, 8b BF16")
    assert f"decoding an 8b model in BF16 uses {decode[0]} of the bandwidth of memory (llama.cpp: {decode[1]})" in text
    assert f"a prompt of 2,048 tokens {prefill[0]} of the rate of the matrix units ({prefill[1]})" in text
    many = next(row for row in rows(root, "h200") if row["work"] == "decode x 256, 8b BF16")
    fp8 = next(row for row in rows(root, "h200") if row["work"] == "decode x 256, 8b FP8, cache fp8")
    ours, theirs, small = (f"{int(row[who]):,}" for row, who in ((many, "ingot"), (many, "llama.cpp"), (fp8, "ingot")))
    assert f"{ours} tokens a second with that model ({theirs}), and {small} in FP8" in text


@pytest.mark.parametrize("page", ["README.md", "docs/performance.md"])
def test_the_pages_say_what_the_data_says(page):
    check(SOURCE, (SOURCE / page).read_text())


def test_drawn_data_changes_the_headlines(tmp_path):
    print("seed", SEED)
    draw = random.Random(SEED)
    for _ in range(20):
        shutil.rmtree(tmp_path / "docs", ignore_errors=True)
        (tmp_path / "docs" / "data").mkdir(parents=True)
        for name in (*CORES, "xeon16", "h200", "memory", "recurrent"):
            with open(SOURCE / "docs" / "data" / f"{name}.csv") as file:
                head, *table = csv.reader(file)
            for row in table:
                for i, cell in enumerate(row):
                    if re.fullmatch(r"[\d.]+", cell):
                        row[i] = str(draw.randint(1, 50_000))
            with open(tmp_path / "docs" / "data" / f"{name}.csv", "w") as file:
                csv.writer(file, lineterminator="\n").writerows([head, *table])
        shutil.copy(SOURCE / "README.md", tmp_path)
        made = dict(charts.documents(tmp_path))
        for page in ("README.md", "docs/performance.md"):
            check(tmp_path, made[page])


def test_no_other_page_compares_speeds_with_other_programs():
    """Pages that measure more name their conditions: performance.md with its notebook, and formats.md."""
    speed = re.compile(r"\d[\d.,]*(?: to [\d.,]+)? (?:times as fast|x as fast)|times as fast as (?:llama|vLLM|Ollama)")
    pages = [SOURCE / "README.md", *(SOURCE / "docs").glob("*.md")]
    for page in pages:
        if page.name in ("performance.md", "formats.md"):
            continue
        text = page.read_text()
        if page.name == "README.md":
            text = re.sub(rf"^{re.escape(charts.SPEED_ITEM)}.*\n(?:  .*\n)*", "", text, flags=re.M)
        parts = [" ".join(part.split()) for part in text.split("\n\n")]
        assert not [m[0] for part in parts if "llama" in part for m in speed.finditer(part)], page.name
