"""ingot grammar check and bench grammar; --json-schema, --regex and --grammar of run. What cannot be enforced is exit code 2."""
import json
import re

import pytest

CASES = [
    {"schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"const": "é\"{"}}, "required": ["a"]},
     "tests": [{"data": {"a": 1}, "valid": True}, {"data": {"b": "é\"{", "a": -3}, "valid": True}, {"data": {"a": 1.5}, "valid": False}, {"data": {"b": "é\"{"}, "valid": False}]},
    {"schema": True, "tests": [{"data": [1, {"x": "]}"}], "valid": True}, {"data": None, "valid": True}]},
    {"schema": {"$ref": "http://example.com/far"}, "tests": [{"data": 1, "valid": True}]},
]


def lines(cases):
    return "".join(json.dumps(c, ensure_ascii=False) + "\n" for c in cases)


def test_cases(ingot, tmp_path):
    file = tmp_path / "cases.jsonl"
    file.write_text(lines(CASES))
    *results, summary = map(json.loads, ingot("grammar", "check", "--jsonl", file).stdout.splitlines())
    assert [r.get("verdicts") for r in results] == [[True, True, False, False], [True, True], None]
    assert results[0]["passed"] and results[0]["compile_us"] > 0 and results[0]["step_us"] > 0
    assert "$ref" in results[2]["refused"]
    assert summary == {"schemas": 3, "passed": 2, "refused": 1, "invalid_accepted": 0, "valid_rejected": 0}
    assert json.loads(ingot("grammar", "check", "--jsonl", "-", input=lines(CASES)).stdout.splitlines()[-1]) == summary


def test_wrong_verdicts_are_counted_and_are_exit_code_1(ingot):
    case = {"schema": {"type": "string"}, "tests": [{"data": "x", "valid": False}, {"data": 1, "valid": True}]}
    done = ingot("grammar", "check", "--jsonl", "-", input=lines([case]), ok=False)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 1 and summary["invalid_accepted"] == summary["valid_rejected"] == 1 and summary["passed"] == 0


def test_order(ingot):
    """Members come in any order here, and with --ordered in the schema's."""
    schema = json.dumps({"properties": {"a": True, "b": True}})
    for flags, code in (([], 0), (["--ordered"], 1)):
        assert ingot("grammar", "check", "--json-schema", schema, *flags, input='{"b": 1, "a": 2}\n', ok=False).returncode == code


@pytest.mark.parametrize("flags, accepted, rejected", [
    (["--regex", "a+b"], ["ab", "aaab"], [("a", "ends too early"), ("abb", "at byte 2"), ("", "ends too early")]),
    (["--grammar", 'root ::= "x" [0-9]+'], ["x1", "x123"], [("x", "ends too early"), ("1", "at byte 0")]),
    (["--grammar", 'start: "p" ("q" | "r")'], ["pq", "pr"], [("ps", "at byte 1")]),
    (["--json-schema", '{"type": "array", "maxItems": 1}'], ["[]", "[ 1 ]"], [("[1,2]", "at byte 2"), ("{}", "at byte 0")]),
])
def test_lines(ingot, flags, accepted, rejected):
    assert ingot("grammar", "check", *flags, input="\n".join(accepted)).stdout.splitlines() == ["accepted"] * len(accepted)
    done = ingot("grammar", "check", *flags, input="\n".join(text for text, _ in rejected) + "\n", ok=False)
    assert done.returncode == 1
    for line, (_, words) in zip(done.stdout.splitlines(), rejected, strict=True):
        assert line.startswith("rejected") and words in line
    one = json.loads(ingot("grammar", "check", *flags, "--json", input=accepted[0]).stdout)
    assert one["accepted"] and one["n_read"] == len(accepted[0]) and one["compile_us"] > 0


@pytest.mark.parametrize("verb", [["run", "-p", "x"], ["chat"], ["grammar", "check"]])
@pytest.mark.parametrize("flags, words", [
    (["--json-schema", '{"properties": {"a": {"type": "strin"}}}'], ["--json-schema", "type", "properties"]), (["--json-schema", "{"], ["--json-schema"]),
    (["--json-schema", "@no/such"], ["--json-schema", "no/such"]), (["--regex", "(a"], ["--regex"]), (["--grammar", "root ::= nothing"], ["--grammar", "nothing"]),
    (["--regex", "a", "--grammar", "b"], ["--regex", "--grammar"]),
])
def test_what_cannot_be_enforced_is_refused(ingot, verb, flags, words):
    done = ingot(*verb, *flags, ok=False)
    assert done.returncode == 2 and not done.stdout and len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("case", ["", "x", "[]", "{}", '{"schema": true, "tests": [1]}', '{"schema": true, "tests": [{}]}'])
def test_bad_cases_are_named(ingot, case):
    done = ingot("grammar", "check", "--jsonl", "-", input=lines(CASES[:1]) + case + "\n", ok=False)
    assert done.returncode == (1 if case else 0) and ("-:2: " in done.stderr) == bool(case)


def test_run_follows(ingot, tmp_path):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "old": {"type": "boolean"}}, "required": ["name", "old"],
              "additionalProperties": False}
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema))
    for seed in range(3):
        got = json.loads(json.loads(ingot("run", "-p", "Who?", "--seed", seed, "-n", 400, "--json", "--json-schema", f"@{file}").stdout)["text"])
        assert list(got) == ["name", "old"] and len(got["name"]) <= 8 and type(got["old"]) is bool
        assert re.fullmatch("(yes|no) [0-9]{2}\n", ingot("run", "-p", "Hi", "--seed", seed, "--regex", "(yes|no) [0-9]{2}").stdout)
    assert ingot("run", "-p", "Hi", "--ignore-eos", "--grammar", 'root ::= "a" "b"').stdout == "ab\n"
    assert "xyz" in ingot("chat", "--regex", "xyz", input="Hi\nAgain\n").stdout


def test_bench(ingot, tmp_path):
    file = tmp_path / "cases.jsonl"
    file.write_text(lines(CASES))
    out = ingot("bench", "grammar", file).stdout
    assert "3 schemas, 1 of them refused; 0 valid instances rejected" in out
    assert re.search(r"compile +2 times: p50 [0-9.]+ us, mean [0-9.]+ us, p99", out) and re.search(r"mask +\d+ times", out)
