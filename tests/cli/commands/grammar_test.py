"""ingot grammar check and bench grammar; --json-schema, --regex and --grammar of run. Constraints that cannot be
enforced give exit code 2."""
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
    """Members may have any order here, and with --ordered the schema's order."""
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


@pytest.mark.parametrize("command", [["run", "-p", "x"], ["chat"], ["grammar", "check"]])
@pytest.mark.parametrize("flags, words", [
    (["--json-schema", '{"properties": {"a": {"type": "strin"}}}'], ["--json-schema", "type", "properties"]), (["--json-schema", "{"], ["--json-schema"]),
    (["--json-schema", "@no/such"], ["--json-schema", "no/such"]), (["--regex", "(a"], ["--regex"]), (["--grammar", "root ::= nothing"], ["--grammar", "nothing"]),
    (["--regex", "a", "--grammar", "b"], ["--regex", "--grammar"]),
])
def test_what_cannot_be_enforced_is_refused(ingot, command, flags, words):
    done = ingot(*command, *flags, ok=False)
    assert done.returncode == 2 and not done.stdout and len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr


UNENFORCED = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(x)\\1", "maxLength": 3}, "b": {"const": 1}}, "required": ["a", "b"],
              "additionalProperties": False}


def test_lenient_schemas(ingot):
    """A keyword that cannot be enforced is an error, or with --lenient-schema a warning with keyword and path."""
    flags = ["--json-schema", json.dumps(UNENFORCED)]
    for command in (["grammar", "check"], ["run", "-p", "x"], ["chat"]):
        refused = ingot(*command, *flags, ok=False)
        assert refused.returncode == 2 and "#/properties/a" in refused.stderr and "'pattern'" in refused.stderr
    done = ingot("grammar", "check", *flags, "--lenient-schema", input='{"b": 1, "a": "y"}\n{"a": "long", "b": 1}\n', ok=False)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["accepted", "rejected"]
    for done in (done, ingot("run", "-p", "x", "-n", 100, *flags, "--lenient-schema"), ingot("chat", *flags, "-n", 100, "--lenient-schema", input="x\n")):
        warnings = [line for line in done.stderr.splitlines() if "not enforced" in line]
        assert len(warnings) == 1 and "#/properties/a" in warnings[0] and "'pattern'" in warnings[0]
    case = {"schema": UNENFORCED, "tests": [{"data": {"a": "y", "b": 1}, "valid": True}]}
    results = ingot("grammar", "check", "--lenient-schema", "--jsonl", "-", input=lines([case])).stdout.splitlines()
    assert "'pattern'" in json.loads(results[0])["warnings"][0] and json.loads(results[0])["passed"]


def test_any_order(ingot):
    """Answers have their members in the schema's order, or with --any-order in any order."""
    schema = json.dumps({"type": "object", "properties": {name: {"type": "null"} for name in "ab"}, "required": ["a", "b"], "additionalProperties": False})
    answer = lambda seed, *flags: json.loads(ingot("run", "-p", "x", "--temp", 5, "--top-k", 0, "--top-p", 1, "--seed", seed, "-n", 200, "--json-schema", schema, *flags).stdout)
    assert all(list(answer(seed)) == ["a", "b"] for seed in range(4))
    assert ["b", "a"] in [list(answer(seed, "--any-order")) for seed in range(16)]


HOSTILE = {
    "nested groups": ("--grammar", "root ::= " + "(" * 60000, "line 1, column 267"),
    "a chain of rules": ("--grammar", "".join(f"r{i} ::= r{i + 1}\n" for i in range(9000)), "'r9000' is not defined"),
    "many rules": ("--grammar", "".join(f"r{i} ::= r{i + 1}\n" for i in range(100000)), "at most 262144"),
    "a rule that is itself": ("--grammar", "root ::= root", "line 1, column 1: no text can match"),
    "left recursion": ("--grammar", 'root ::= x\nx ::= y "b" | "c"\ny ::= "a"? x', "column 1: a rule begins with itself"),
    "a range": ("--grammar", "root ::= [z-a]", "line 1, column 11"),
    "bounds": ("--grammar", 'root ::= "a"{2,1}', "line 1, column 13"),
    "no root": ("--grammar", 'a ::= "x"', "line 1, column 10: there is no rule 'root'"),
    "an open literal": ("--grammar", 'root ::= "a', "line 1, column 12"),
    "nested schemas": ("--json-schema", '{"items":' * 65 + "{}" + "}" * 65, "deeper than 64"),
    "nested values": ("--json-schema", "[" * 100000, "deeper"),
    "an empty enum": ("--json-schema", '{"enum": []}', "'enum' is empty"),
    "a file": ("--json-schema", '{"$ref": "file:///etc/passwd"}', "not part of this schema"),
    "a large count": ("--json-schema", '{"maxLength": 18446744073709551615}', "'maxLength' is too large"),
    "nested groups of a regex": ("--regex", "(" * 60000, "nest too deeply"),
    "nothing to repeat": ("--regex", "*a", "nothing to repeat"),
    "look-behind": ("--regex", "(?<=x)a", "look-behind"),
    "back references": ("--regex", "(a)\\1", "back references"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_constraints_are_refused_in_one_line(ingot, tmp_path, name):
    flag, text, words = HOSTILE[name]
    file = tmp_path / "constraint"
    file.write_text(text)
    done = ingot("grammar", "check", flag, text if flag == "--regex" else f"@{file}", ok=False)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and words in done.stderr, done.stderr[:500]


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
