"""ingot bench serve against a running server: every request is counted once, and the figures are consistent."""
import csv
import json
import os
import subprocess
import xml.etree.ElementTree

import pytest


def bench(*args, ok=True):
    done = subprocess.run([os.environ["INGOT"], "bench", "serve", *map(str, args)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert (done.returncode == 0) == ok, done.stderr
    return done


def check(got, n):
    assert got["requests"] == n == got["ok"] + got["refused"] + got["failed"]
    for name in ("ttft_ms", "itl_ms", "e2e_ms"):
        assert 0 <= got[name]["p50"] <= got[name]["p90"] <= got[name]["p99"] <= got[name]["max"]
    assert got["ttft_ms"]["p50"] > 0
    assert got["ttft_ms"]["max"] <= got["e2e_ms"]["max"] <= got["seconds"] * 1e3 + 1


def test_closed_loop(server, tmp_path):
    plot = tmp_path / "plot.svg"
    before = server.metric("generation_tokens_total"), server.metric("prompt_tokens_total")
    got = json.loads(bench("--url", server.url + "/", "--requests", 9, "--concurrency", 3, "-p", 12, "-n", 7, "-o", "json", "--plot", plot).stdout)
    check(got, 9)
    assert got["ok"] == 9 and got["model"] == "demo"
    assert server.metric("generation_tokens_total") - before[0] == 63 and server.metric("prompt_tokens_total") - before[1] == 108
    assert got["output_tokens_per_s"] == pytest.approx(63 / got["seconds"], rel=1e-6) and got["total_tokens_per_s"] == pytest.approx(171 / got["seconds"], rel=1e-6)
    root = xml.etree.ElementTree.parse(plot).getroot()
    assert root.tag.endswith("svg") and len(root.findall("{*}polyline")) == 3


def test_open_loop_takes_the_time_of_its_arrivals(server):
    fields = ["--url", server.url, "--requests", 20, "--rate", 20, "-p", 5, "-n", 3, "--seed", 7, "-o", "csv"]
    (row,) = csv.DictReader(bench(*fields).stdout.splitlines())
    assert int(row["ok"]) == 20 and float(row["seconds"]) > 0.3 and float(row["ttft_ms_p50"]) > 0
    assert float(row["goodput_per_s"]) <= float(row["requests_per_s"]) + 1e-9
    (row,) = csv.DictReader(bench(*fields, "--slo-ttft-ms", 0).stdout.splitlines())
    assert float(row["goodput_per_s"]) == 0


def test_lengths_like_peoples(server):
    before = server.metric("generation_tokens_total")
    assert "20 ok" in bench("--url", server.url, "--requests", 20, "--concurrency", 8, "--sharegpt", "-p", 8, "-n", 5).stdout
    assert 20 * 4 <= server.metric("generation_tokens_total") - before <= 20 * 20


def test_what_is_refused_is_counted(start):
    server = start("--max-seqs", 1, "--queue", 1, "--access-log", "none", "--api-key", "sesame")
    got = json.loads(bench("--url", server.url, "--api-key", "sesame", "--requests", 20, "--concurrency", 10, "-p", 5, "-n", 100, "-o", "json").stdout)
    check(got, 20)
    assert got["refused"] > 0 and got["failed"] == 0 and got["ok"] >= 2
    assert "none of 2 requests" in bench("--url", server.url, "--api-key", "sesame", "--requests", 2, "-p", 100000, "-n", 5, ok=False).stderr


@pytest.mark.parametrize("args, word", [(["--url", "http://127.0.0.1:1"], "does not answer"), ([], "--url"), (["--url", "http://127.0.0.1:1", "--requests", "0"], "--requests")])
def test_what_cannot_be_measured(args, word):
    done = bench(*args, ok=False)
    assert word in done.stderr and done.stdout == ""


def test_a_model_that_is_not_there(server):
    assert "no model 'nosuch'" in bench("--url", server.url, "--model", "nosuch", ok=False).stderr
