#!/usr/bin/env python3
"""Writes the tables of docs/grammar.md: for each keyword, the number of cases of the JSON-Schema-Test-Suite on which
`ingot grammar check` agrees, and its verdicts on the schemas of MaskBench.

  tools/grammar_table.py --ingot build/ingot --suite json-schema-test-suite.jsonl.gz --maskbench maskbench.jsonl.gz [--print]

Both files have one line per schema, {"schema": ..., "tests": [{"data": ..., "valid": true}]}; the suite's lines also
have "draft" and "file". --print writes the tables and every wrong case to the terminal and does not change the page.
"""
import argparse
import collections
import gzip
import json
import pathlib
import subprocess

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "grammar.md"
DRAFTS = {"draft4": "http://json-schema.org/draft-04/schema#", "draft6": "http://json-schema.org/draft-06/schema#",
          "draft7": "http://json-schema.org/draft-07/schema#", "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
          "draft2020-12": "https://json-schema.org/draft/2020-12/schema"}


def read(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def of_its_draft(case):
    """Sets $schema: the suite states the draft next to the schema, while users state it in the schema."""
    schema = case["schema"]
    if isinstance(schema, dict) and "$schema" not in schema and case.get("draft") in DRAFTS:
        schema = {"$schema": DRAFTS[case["draft"]]} | schema
    return {"schema": schema, "tests": [{"data": t["data"], "valid": t["valid"]} for t in case["tests"]]}


def check(ingot, cases):
    lines = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)
    done = subprocess.run([ingot, "grammar", "check", "--jsonl", "-"], input=lines, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    *results, summary = map(json.loads, done.stdout.splitlines())
    return results, summary


def suite_table(ingot, cases, faults):
    results, _ = check(ingot, map(of_its_draft, cases))
    rows = collections.defaultdict(lambda: [0, 0, 0, 0])  # cases, right, refused, wrong
    reasons = collections.Counter()
    for case, result in zip(cases, results, strict=True):
        row = rows[case["file"].removesuffix(".json")]
        n = len(case["tests"])
        row[0] += n
        if "refused" in result:
            empty = "allows no value at all" in result["refused"]
            wrong = sum(t["valid"] for t in case["tests"]) if empty else 0
            row[1 if empty else 2] += n - wrong
            row[3] += wrong
            if not empty:
                reasons[result["refused"]] += n
                faults.append(f"{case['draft']} {case['file']}: {case['description']}: {result['refused']}")
            continue
        for test, verdict in zip(case["tests"], result["verdicts"], strict=True):
            row[1 if verdict == test["valid"] else 3] += 1
            if verdict != test["valid"]:
                faults.append(f"{case['draft']} {case['file']}: {case['description']}: {json.dumps(test['data'])} valid={test['valid']}")
    lines = ["| keyword | cases | agree | refused | wrong |", "|---|---|---|---|---|"]
    total = [sum(column) for column in zip(*rows.values())]
    for name, row in [*sorted(rows.items()), ("**all**", total)]:
        lines.append(f"| {name} | " + " | ".join(map(str, row)) + " |")
    return lines


def maskbench_table(ingot, cases, faults):
    results, summary = check(ingot, [{"schema": c["schema"], "tests": c["tests"]} for c in cases])
    for case, result in zip(cases, results, strict=True):
        if "refused" in result:
            faults.append(f"{case.get('id')}: {result['refused']}")
        elif not result["passed"]:
            faults.append(f"{case.get('id')}: {[(t['valid'], v) for t, v in zip(case['tests'], result['verdicts'])]}")
    keys = ["schemas", "passed", "refused", "invalid_accepted", "valid_rejected"]
    return ["| " + " | ".join(k.replace("_", " ") for k in keys) + " |", "|---" * len(keys) + "|",
            "| " + " | ".join(str(summary[k]) for k in keys) + " |"]


def fill(text, name, lines):
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    at = text.index(begin) + len(begin)
    return text[:at] + "\n" + "\n".join(lines) + "\n" + text[text.index(end, at):]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ingot", default="build/ingot")
    parser.add_argument("--suite", required=True)
    parser.add_argument("--maskbench", required=True)
    parser.add_argument("--print", action="store_true")
    options = parser.parse_args()
    faults = []
    suite = suite_table(options.ingot, read(options.suite), faults)
    maskbench = maskbench_table(options.ingot, read(options.maskbench), faults)
    if options.print:
        print("\n".join([*suite, "", *maskbench, "", *faults]))
        return
    text = PAGE.read_text()
    PAGE.write_text(fill(fill(text, "suite", suite), "maskbench", maskbench))


if __name__ == "__main__":
    main()
