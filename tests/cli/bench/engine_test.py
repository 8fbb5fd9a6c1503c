"""The engine in the program: chats with cached prefixes, benchmarks of batches and of arrivals, determinism."""
import json
import re

import pytest
from conftest import DATA, SOURCE


def test_a_chat_computes_only_what_is_new(ingot_chat):
    out = ingot_chat("My name is Bramwell.\n/stats\nWhat is my name?\n/stats\nAnd what do you like?\n/stats\n")
    stats = re.findall(r"context (\d+) of \d+ tokens; prefill (\d+) tokens(?: \((\d+) more from the cache\))?", out)
    assert len(stats) == 3 and stats[0][2] == ""
    for (context, _, _), (_, prefill, cached) in zip(stats, stats[1:]):
        # All earlier tokens are cached, except the template's end of the turn and the last sampled token.
        assert int(cached) >= int(context) - 4 and int(prefill) < 40, stats


def test_bench_batch(ingot):
    args = ["bench", "batch", "--npp", "16,8", "--ntg", "4", "--npl", "1,3", "-t", "1"]
    rows = json.loads(ingot(*args, "--json").stdout)
    assert [(r["pp"], r["tg"], r["pl"], r["n_kv"]) for r in rows] == [(16, 4, 1, 20), (16, 4, 3, 60), (8, 4, 1, 12), (8, 4, 3, 36)]
    for r in rows:
        assert r["speed_pp"] == pytest.approx(r["pp"] * r["pl"] / r["t_pp"]) and r["speed_tg"] == pytest.approx(r["tg"] * r["pl"] / r["t_tg"])
        assert r["t"] == pytest.approx(r["t_pp"] + r["t_tg"])
    table = ingot(*args).stdout
    assert "|    PP |    TG |    B |" in table and len([line for line in table.splitlines() if re.match(r"\| +\d", line)]) == 4


def test_bench_engine(ingot, tmp_path):
    trace = tmp_path / "trace.json"
    args = ["bench", "engine", "--requests", "12", "--turns", "3", "--shared", "40", "-p", "20", "-n", "6", "--max-seqs", "4", "-t", "1"]
    r = json.loads(ingot(*args, "--json", "--trace", trace).stdout)
    assert r["requests"] == 12 and r["failed"] == 0 and r["hit_rate"] > 0.4 and r["steps"] > 0
    assert r["computed_tokens"] == r["prompt_tokens"] - r["cached_tokens"] + r["output_tokens"] - r["requests"]
    for key in ["ttft_ms", "itl_ms", "step_ms", "plan_us"]:
        assert 0 <= r[key]["p50"] <= r[key]["p90"] <= r[key]["p99"] <= r[key]["max"]
    spans = [e for e in json.loads(trace.read_text()) if "step" in e.get("args", {})]  # the rest are the model's ops
    assert {e["name"] for e in spans} == {"plan", "fill", "forward", "sample", "emit"} and all("cached" in e["args"] for e in spans)
    no_cache = json.loads(ingot(*args, "--json", "--no-prefix-cache").stdout)
    assert no_cache["cached_tokens"] == 0 and no_cache["output_tokens"] == r["output_tokens"]
    assert "throughput" in ingot(*args, "--rate", "1000").stdout


SCHEMA = {"type": "array", "minItems": 9, "items": {"type": "object", "additionalProperties": False, "required": ["is_it_awake_at_night"],
                                                  "properties": {"is_it_awake_at_night": {"type": "boolean"}}}}


def test_bench_engine_with_a_grammar(ingot):
    """Loads without and with the grammar, alternately. Forced text takes fewer steps. Each step of all sequences has
    masks."""
    args = ["bench", "engine", "--requests", "4", "--max-seqs", "4", "-p", "8", "-n", "40", "--spread", "0", "-t", "1", "--pairs", "2",
            "--json-schema", json.dumps(SCHEMA)]
    jumping, drawing = (json.loads(ingot(*args, "--json", *more).stdout) for more in ([], ["--no-jump-ahead"]))
    for r in (jumping, drawing):
        assert len(r["free"]) == len(r["constrained"]) == 2 and r["decode_step_ratio"] > 0 and r["cpu_seconds_ratio"] > 0
        assert all(one["forced_tokens"] == 0 == one["mask_us"]["max"] and one["output_tokens"] == 160 for one in r["free"])
        assert all(one["mask_us"]["p50"] > 0 and one["failed"] == 0 for one in r["constrained"])
    assert all(one["forced_tokens"] > 20 for one in jumping["constrained"]) and all(one["forced_tokens"] == 0 for one in drawing["constrained"])
    assert jumping["constrained"][1]["steps"] < drawing["constrained"][1]["steps"]
    assert "constrained / free" in ingot(*args).stdout
    refused = ingot("bench", "engine", "--shape", "llama-3.2-1b", "--regex", "a", ok=False)
    assert refused.returncode == 2 and "--shape" in refused.stderr


def test_bench_engine_speculates(ingot):
    """Loads without and with drafts, alternately, with the same output. An oracle knows the answers of the load
    before."""
    args = ["bench", "engine", "--shape", "smollm-135m", "--requests", "2", "--max-seqs", "1", "-p", "8", "-n", "48", "--spread", "0", "--pairs", "1"]
    for how, least, most in (("oracle:1", 1, 1), ("oracle:1:2", 1, 1), ("oracle:0", 0, 0), ("ngram", 0, 1)):
        r = json.loads(ingot(*args, "--speculate", how, "--json").stdout)
        off, on = r["off"][0], r["speculating"][0]
        assert off["draft_tokens"] == 0 and off["output_tokens"] == on["output_tokens"] == 96
        assert least * on["draft_tokens"] <= on["accepted_tokens"] <= most * on["draft_tokens"]
        assert on["steps"] == off["steps"] - on["accepted_tokens"]
        assert on["draft_tokens"] > 0 or not how.startswith("oracle:1")
        assert how != "oracle:1:2" or 2 * 30 <= on["accepted_tokens"] <= 2 * 32  # 16 steps a request
    assert "speculating / off" in ingot(*args, "--speculate", "oracle:0.5").stdout
    for how in ("oracle:1.5", "oracle:x", "oracle:", "oracle:1:", "oracle:1:0", "oracle:1:16", "oracle:1:2:3", "guess"):
        refused = ingot(*args, "--speculate", how, ok=False)
        assert refused.returncode == 2 and "--speculate" in refused.stderr and "Traceback" not in refused.stderr


def test_run_speculates(ingot):
    """The same text with and without drafts, greedy and sampled. The model is its own draft model, so each greedy guess
    is right. The small draft model runs on another device."""
    args = ["run", "-p", "Tell me a story about a fox.", "-n", "60", "--ignore-eos", "--seed", "3", "--json"]
    draft = ["--draft", SOURCE / "models" / "demo.gguf"]
    elsewhere = ["--draft", SOURCE / "models" / "demo-draft.gguf", "--draft-device", "ref"]
    for temperature in ("0", "0.8"):
        off, *others = (json.loads(ingot(*args, "--temp", temperature, *more).stdout)
                        for more in (["--speculate", "off"], ["--speculate", "ngram"], draft, elsewhere))
        assert off["draft_tokens"] == 0 and off["sampling_steps"] == 60
        for one in others:
            assert one["token_ids"] == off["token_ids"]
            assert one["sampling_steps"] == 60 - one["accepted_tokens"] and one["accepted_tokens"] <= one["draft_tokens"]
    assert "accepted" not in ingot("run", "-p", "Hello", "-n", "8", "--speculate", "off").stderr


@pytest.mark.parametrize("model, draft", [("mimo", []), ("qwen35.gguf", []), ("eagle3", ["--draft", DATA / "heads" / "eagle3_head"])])
def test_run_speculates_with_a_head(ingot, model, draft):
    """Tiny random models with a layer for multi-token prediction, or an EAGLE-3 head: the same text, and some drafts."""
    args = ["run", DATA / "heads" / model, "--raw", "-p", "the cat and the hat", "-n", "100", "--ignore-eos", "--temp", "0", "--json"]
    off = json.loads(ingot(*args, "--speculate", "off").stdout)
    for how in ("auto", "eagle3" if draft else "mtp"):
        on = json.loads(ingot(*args, "--speculate", how, *draft).stdout)
        assert on["token_ids"] == off["token_ids"]
        assert on["draft_tokens"] > 0 and on["sampling_steps"] == 100 - on["accepted_tokens"]
    bench = ["bench", "engine", DATA / "heads" / model, "--requests", "2", "-p", "8", "-n", "20", "--spread", "0", "--pairs", "1", "--json"]
    result = json.loads(ingot(*bench, "--speculate", "eagle3" if draft else "mtp", *draft).stdout)
    assert result["off"][0]["draft_tokens"] == 0 and result["speculating"][0]["output_tokens"] == 40


def test_heads_that_are_missing_or_do_not_fit(ingot):
    """A message of one line before a model is loaded."""
    heads, plain = DATA / "heads", DATA / "models" / "llama.gguf"
    for model, more, what in (
            (plain, ["--speculate", "mtp"], "the model has no layer for multi-token prediction (MTP): speculate in another way, or not at all"),
            (plain, ["--speculate", "eagle3", "--draft", heads / "mimo"], "it is not an EAGLE-3 head, which has a tensor midlayer.hidden_norm.weight"),
            (heads / "eagle3", ["--speculate", "draft", "--draft", heads / "eagle3_head"], "it is an EAGLE-3 head and not a model"),
            (heads / "eagle3_moe", ["--draft", heads / "eagle3_head"], "the head is made for 261 tokens, but the model has 263")):
        refused = ingot("run", model, "-p", "x", *more, ok=False)
        assert refused.returncode == 1 and refused.stdout == "" and refused.stderr.count("\n") == 1 and what in refused.stderr
    for wrong in (["--speculate", "eagle3"], ["--speculate", "mtp", "--draft", plain], ["--draft-device", "cpu"]):
        refused = ingot("run", plain, "-p", "x", *wrong, ok=False)
        assert refused.returncode == 2 and "--draft" in refused.stderr
    refused = ingot("run", heads / "eagle3", "-p", "x", "--draft", heads / "eagle3_head", "--draft-device", "cpu", ok=False)
    assert refused.returncode == 2 and "an EAGLE-3 head runs on the model's device" in refused.stderr


def test_a_draft_with_other_tokens_is_refused(ingot):
    other = DATA / "models" / "qwen2.gguf"
    for command in (["run", "-p", "x"], ["chat"]):
        refused = ingot(*command, "--draft", other, ok=False, input="")
        assert refused.returncode == 1 and refused.stdout == ""
        assert re.fullmatch(r"ingot: --draft .*qwen2.gguf: it has \d+ tokens, but the model has \d+: a draft model needs the same tokens\n", refused.stderr)
    for wrong in (["--speculate", "draft"], ["--speculate", "much"]):
        assert ingot("run", "-p", "x", *wrong, ok=False).returncode == 2


@pytest.fixture
def ingot_chat(ingot):
    return lambda text: ingot("chat", "--temp", "0", "-n", "20", "-t", "1", input=text).stdout
