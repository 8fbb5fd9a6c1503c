#!/usr/bin/env python3
"""Load and fault figures of the server:

    ninja -C build ingot-cli fake_server sse_load && tests/load/run.py build [--scale 0.1] [ROW ...]

Each row prints a JSON line with its figure, its rule, and whether the rule holds. The exit code is 1 if a rule does not
hold. --scale makes rows smaller (streams, requests and times, not the rules) for a small machine. --untimed leaves out
rules that need a quiet machine. Server and client run on separate CPUs if there are two. The rows run on the fake
runner, whose tokens are known, so every event is checked. Row 11 runs the demo model. Row 4 needs a build with
-DINGOT_SANITIZE. Other rows are separate tests: 12 (equal in any batch) tests/engine, 17 (failing calls)
tests/server/faults_test.py, 18 (truncated files) tests/io, 21 (bad requests) tests/server.
"""
import argparse
import json
import pathlib
import random
import socket
import struct
import subprocess
import threading
import time

from rig import Prober, Rig, percentile, slope_per_minute


# A row takes a Rig and returns its figures, whether all results were right, and whether the times were within the rule.

def no_harm(got):
    return got["wrong"] == got["short"] == 0 and got["done"] == got["requests"]


def streams_at_a_pace(rig, n, step_us, n_tokens, **beside):
    server = rig.fake(step_us=step_us, max_seqs=n)
    before, cpu = server.status("VmRSS"), server.cpu_s()
    got = rig.load(server, requests=n, tokens=n_tokens, pace=step_us / 1000, **beside)
    got |= {"rss_kib_per_stream": round((server.status("VmHWM") - before) / n, 1), "server_cpu_share": round((server.cpu_s() - cpu) / got["seconds"], 3)}
    return got, server.stop()


def row1(rig):
    """1,000 streams of 400 tokens at 20 a second each: none lost, doubled, reordered or mixed; gap p99 <= 75 ms, max <= 250 ms; <= 64 KiB a stream."""
    got, code = streams_at_a_pace(rig, rig.n(1000, 20), 50_000, 400)
    return got, no_harm(got) and got["rss_kib_per_stream"] <= 64 and code == 0, got["gap_p99_ms"] <= 75 and got["gap_max_ms"] <= 250


def row2(rig):
    """The same flat out: at least 30,000 tokens a second, nothing lost."""
    got, code = streams_at_a_pace(rig, 1000, 0, rig.n(400, 40))
    return got, no_harm(got) and code == 0, got["tokens_per_s"] >= 30_000


def row3(rig):
    """4,000 streams at 10 a second each: gap p99 <= 160 ms, nothing lost."""
    got, code = streams_at_a_pace(rig, rig.n(4000, 40), 100_000, 100)
    return got, no_harm(got) and code == 0, got["gap_p99_ms"] <= 160


def row4(rig):
    """Row 1 under a sanitizer (a build with -DINGOT_SANITIZE, which has all CPUs, for it needs several times as much of them): nothing lost, no report; gap p99 <= 150 ms."""
    rig.pinned = False
    got, code = streams_at_a_pace(rig, rig.n(1000, 20), 50_000, 400)
    return got | {"code": code}, no_harm(got) and code == 0, got["gap_p99_ms"] <= 150


def row5(rig):
    """200 live streams and 50 readers that never read: the live ones' p99 as without them (10 %, and 2 ms of noise), memory flat."""
    n, n_stalled = rig.n(200, 20), rig.n(50, 5)
    server = rig.fake(step_us=20_000, max_seqs=n + n_stalled, ctx=4096)
    alone = rig.load(server, requests=n, tokens=300, pace=20)
    server.wait_idle(60)
    rss = server.status("VmRSS")
    got = rig.load(server, requests=n, tokens=300, pace=20, stalled=n_stalled)
    got |= {"alone_p99_ms": alone["gap_p99_ms"], "rss_growth_kib": server.status("VmRSS") - rss}
    server.wait_idle(60)
    flat = got["rss_growth_kib"] <= 512 * n_stalled + 2048  # buffers of each, and what a thread sanitizer's shadow adds to that of few
    return got, no_harm(got) and flat and server.stop() == 0, got["gap_p99_ms"] <= 1.1 * alone["gap_p99_ms"] + 2


def row6(rig):
    """10,000 resets at random moments beside 100 checked streams: none harmed, gauges back within 1 s, descriptors and memory (8 MiB) as before."""
    n_resets, per_s = rig.n(10_000, 100), 500
    server = rig.fake(step_us=20_000, max_seqs=1000, ctx=2048)
    rig.load(server, requests=100, tokens=100, resets=per_s)  # lets the buffers grow to their final sizes
    server.wait_idle(60)
    files, rss = server.n_files(), server.status("VmRSS")
    got = rig.load(server, requests=100, tokens=max(20, n_resets // per_s * 50), resets=per_s)
    got["idle_after_s"] = round(server.wait_idle(60), 2)
    time.sleep(0.5)
    got |= {"files_left": server.n_files() - files, "rss_growth_kib": server.status("VmRSS") - rss}
    right = no_harm(got) and got["resets"] >= 0.9 * n_resets and got["files_left"] <= 1 and got["rss_growth_kib"] <= 8192
    return got, right and server.stop() == 0, got["idle_after_s"] <= 1


def row7(rig):
    """200 slow and 2,000 idle connections, and others for those that are let go of, beside row 1 for 10 min: its rules still hold."""
    n, n_slow, n_idle, rounds = rig.n(1000, 20), rig.n(200, 5), rig.n(2000, 20), rig.n(30)
    server = rig.fake(step_us=50_000, max_seqs=n)
    files = server.n_files()
    got = rig.load(server, requests=n * rounds, concurrency=n, tokens=400, pace=50, slow=n_slow, idle=n_idle, seconds=3600)
    time.sleep(1)
    got["files_left"] = server.n_files() - files
    return got, no_harm(got) and got["let_go"] >= n_slow and got["files_left"] <= 1 and server.stop() == 0, got["gap_p99_ms"] <= 75 and got["gap_max_ms"] <= 250


def row8(rig):
    """Ten times as many requests as it can answer, for 10 min: goodput >= 90 % of its peak, 429 and /health within 50 ms (p99), memory flat."""
    seconds, n_tokens = rig.n(600, 15), 50
    server = rig.fake(step_us=10_000, max_seqs=32, queue=64)
    peak = rig.load(server, requests=int(32 * 100 / n_tokens * min(seconds, 20)), concurrency=48, tokens=n_tokens)
    samples, begin = [], time.monotonic()
    with Prober(server) as prober:
        load = rig.begin_load(server, requests=int(10 * peak["done_per_s"] * seconds), rate=10 * peak["done_per_s"], tokens=n_tokens)
        while load.poll() is None:
            samples.append((time.monotonic() - begin, server.status("VmRSS")))
            time.sleep(0.25)
    got = json.loads(load.stdout.read())
    late = samples[len(samples) // 3:]  # after its buffers have grown to their final sizes
    got |= {"peak_per_s": peak["done_per_s"], "share_of_peak": round(got["done_per_s"] / peak["done_per_s"], 3), "health_p99_ms": round(percentile(prober.ms, .99), 1),
            "rss_kib_per_minute": round(slope_per_minute(late), 1), "rss_growth_kib": late[-1][1] - late[0][1]}
    right = got["wrong"] == got["short"] == 0 and got["done"] + got["refused"] == got["requests"] and server.stop() == 0
    return got, right and got["rss_growth_kib"] <= 8192, got["share_of_peak"] >= 0.9 and got["refused_p99_ms"] <= 50 and got["health_p99_ms"] <= 50


def ask_for_stream(server, prompt, n_tokens):
    body = json.dumps({"prompt": prompt, "max_tokens": n_tokens, "stream": True, "ignore_eos": True}).encode()
    sock = socket.create_connection(("127.0.0.1", server.port))
    sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return sock


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def row9(rig):
    """From a client's reset to its sequence's end: p99 <= one step (20 ms) and 10 ms."""
    server = rig.fake(step_us=20_000, max_seqs=16)
    c, ms = server.connection(), []
    for _ in range(rig.n(300, 20)):
        sock = ask_for_stream(server, [1, 2, 3], 400)
        while b'"text":"' not in sock.recv(65536):
            pass
        time.sleep(random.random() * 0.05)
        begin = time.monotonic()
        reset(sock)
        while server.gauge("num_requests_running", c) > 0:
            pass
        ms.append((time.monotonic() - begin) * 1e3)
    got = {"cancels": len(ms), "p50_ms": round(percentile(ms, .5), 1), "p99_ms": round(percentile(ms, .99), 1), "max_ms": round(max(ms), 1)}
    return got, server.stop() == 0, got["p99_ms"] <= 30


def row10(rig):
    """10,000 requests of tenants with prefixes and salts of their own, 16 at once, in a cache that holds few of them: every token is the right one."""
    server = rig.fake(max_seqs=16, ctx=512, blocks=16 * 12)
    got = rig.load(server, requests=rig.n(10_000, 200), concurrency=16, tokens=16, prompt=130, tenants=200)
    queries, hits = server.gauge("prefix_cache_queries_total"), server.gauge("prefix_cache_hits_total")
    got |= {"hit_share": round(hits / queries, 3), "preemptions": server.gauge("num_preemptions_total")}
    return got, no_harm(got) and got["hit_share"] <= 0.1 and server.stop() == 0, True


def row11(rig):
    """One prompt 1,000 times under random load, demo model, --deterministic: one answer."""
    server = rig.demo("--deterministic", "--max-seqs", 8, "--kv-tokens", 2048)
    stop, answers, n_others = threading.Event(), set(), [0]

    def disturb(seed):
        draw, c = random.Random(seed), server.connection()
        while not stop.is_set():
            words = " ".join(draw.choice(["fox", "sea", "bread", "seven", "Once"]) for _ in range(draw.randint(1, 40)))
            server.post("/v1/completions", {"prompt": words, "max_tokens": draw.randint(1, 40), "seed": draw.randrange(99)}, connection=c)
            n_others[0] += 1

    threads = [threading.Thread(target=disturb, args=(i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    c = server.connection()
    n = rig.n(1000, 20)
    for _ in range(n):
        got = server.post("/v1/completions", {"prompt": "Once upon a time there was", "max_tokens": 24, "seed": 5, "temperature": 1.2, "logprobs": 3}, connection=c)
        answers.add(json.dumps(got["choices"]))
    stop.set()
    for thread in threads:
        thread.join()
    return {"repeats": n, "others": n_others[0], "answers": len(answers)}, len(answers) == 1 and server.stop() == 0, True


def row15(rig):
    """200 times kill -9 at a random moment under load: the next one is ready within 2 s, on the same port the first time."""
    runs, starts, port = rig.n(200, 5), [], 0
    for _ in range(runs):
        server = rig.fake(step_us=1000, max_seqs=50, port=port)
        starts.append(server.start_s)
        port = server.port
        server.get("/health")
        client = rig.begin_load(server, requests=50, tokens=200)
        time.sleep(random.random() * 0.2)
        server.process.kill()
        server.process.wait()
        client.communicate()
    return {"runs": runs, "start_p50_s": round(percentile(starts, .5), 2), "start_max_s": round(max(starts), 2)}, True, max(starts) <= 2


def row16(rig):
    """SIGTERM under 200 streams, 100 times: none is cut, exit code 0."""
    runs, cut, codes, n = rig.n(100, 3), 0, set(), rig.n(200, 50)
    for _ in range(runs):
        server = rig.fake(step_us=2000, max_seqs=n)
        client = rig.begin_load(server, requests=n, tokens=400)
        while server.gauge("num_requests_running") < n and client.poll() is None:  # which may be over before they are looked at
            pass
        codes.add(server.stop())
        got = json.loads(client.communicate()[0])
        cut += got["short"] + got["wrong"] + (got["done"] < n)
    return {"runs": runs, "streams": n, "cut": cut, "codes": sorted(codes)}, cut == 0 and codes == {0}, True


def auc(low, high):
    """The probability that a value of `high` is above a value of `low`; 0.5 if they do not differ."""
    return sum((h > l) + 0.5 * (h == l) for h in high for l in low) / (len(low) * len(high))


def row24(rig):
    """Whether a prompt is in another key's cache does not show in the time to the answer: AUC <= 0.55 over 1,000 probes; with one's own key it does."""
    server = rig.fake(token_us=50, max_seqs=8, ctx=1024, api_key=["victim", "spy"])
    c, n = server.connection(), rig.n(1000, 60)

    def ask(key, prompt):
        begin = time.perf_counter()
        server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "ignore_eos": True}, {"X-Api-Key": key}, c)
        return (time.perf_counter() - begin) * 1e3

    def probe(owner):
        hits, misses = [], []
        for i in range(n):
            prompt = [random.randrange(256) for _ in range(400)]
            if i % 2:
                ask(owner, prompt)
            else:
                ask(owner, [random.randrange(256) for _ in range(400)])
            (hits if i % 2 else misses).append(ask("spy", prompt))
        return auc(hits, misses)

    got = {"probes": n, "auc_of_other_keys": round(probe("victim"), 3), "auc_of_own_key": round(probe("spy"), 3)}
    noise = 4 * (1 / (3 * n)) ** 0.5 if n < 1000 else 0  # for fewer probes: four standard deviations
    return got, abs(got["auc_of_other_keys"] - 0.5) <= 0.05 + noise and server.stop() == 0, got["auc_of_own_key"] >= 0.9


def row_D12(rig):
    """A stream without tokens for long (D12) has a head and a comment now and then, and then its tokens; one that is not streamed waits in silence."""
    n_pings = rig.n(20, 3)
    server = rig.fake(step_us=int(n_pings * 0.3e6), ping_ms=200)
    got = {"pings": 0}
    for _ in range(3):  # one success is enough, because a stalled machine sends no pings
        with ask_for_stream(server, [1, 2, 3], 1) as sock:
            bytes_ = b""
            while b"[DONE]" not in bytes_:
                piece = sock.recv(65536)
                assert piece, bytes_
                bytes_ += piece
        before = bytes_.split(b"data: ")[0]
        got["pings"] = before.count(b": ping\n\n")
        if got["pings"] >= n_pings - 1:
            break
    whole = server.post("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 1, "ignore_eos": True})
    got["whole"] = whole["usage"]["completion_tokens"]
    return got, before.startswith(b"HTTP/1.1 200 ") and got["pings"] >= n_pings - 1 and bytes_.count(b'"text":') >= 1 and got["whole"] == 1 and server.stop() == 0, True


def row_D03(rig):
    """Others leave while a prompt of 40,000 tokens is computed (D03): it is answered, nothing is left of them, and SIGTERM ends the next such prompt in peace."""
    server = rig.fake(step_us=10_000, ctx=45_000, max_seqs=8)
    codes, n_left = [], 0
    for last in (False, True):
        long = rig.begin_load(server, requests=1, tokens=20, prompt=rig.n(40_000, 20_000))
        while server.gauge("num_requests_running") == 0 and long.poll() is None:
            pass
        for i in range(8):  # before the first token, after it, and during a long prompt
            sock = ask_for_stream(server, [7] * (20_000 if i % 4 == 3 else 5), 200)
            time.sleep(random.random() * 0.1)
            reset(sock)
            n_left += long.poll() is None
        if last:
            codes.append(server.stop())
        got = json.loads(long.communicate()[0])
        if not no_harm(got):
            return got, False, True
        if not last:
            server.wait_idle(60)
    return {"left_meanwhile": n_left, "codes": codes}, codes == [0], n_left > 0


ROWS = {name.removeprefix("row").lstrip("_"): row for name, row in list(globals().items()) if name.startswith("row")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--untimed", action="store_true", help="rules about time do not count")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    args = parser.parse_intermixed_args()
    failed = 0
    for name in args.rows or ROWS:
        rig = Rig(args.build.resolve(), args.scale)
        begin = time.monotonic()
        try:
            figure, right, in_time = ROWS[name](rig)
        finally:
            rig.close()
        good = right and (in_time or args.untimed)
        print(json.dumps({"row": name, "rule": ROWS[name].__doc__, "right": right, "in_time": in_time, "took_s": round(time.monotonic() - begin, 1), **figure}), flush=True)
        failed += not good
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
