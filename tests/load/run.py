#!/usr/bin/env python3
"""Load and fault figures of the server on the fake runner:

    ninja -C build fake_server sse_load && tests/load/run.py build/tests/load [--scale 0.1] [ROW ...]

Each row prints a JSON line with its figure, what it should be, and whether it is; exit code 1 when one is not. --scale makes the
rows smaller for a small or busy machine (streams and times; not the rules). Server and client get a CPU each where there are two.
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import time


class Server:
    def __init__(self, build, step_us, max_seqs, n_ctx=512, queue=None):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
        args = [build / "fake_server", "0", step_us, max_seqs, n_ctx, queue if queue is not None else 4 * max_seqs]
        self.process = subprocess.Popen([str(a) for a in args], stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(0, range(os.cpu_count()))
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def status(self, key):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(l.split()[1]) for l in text.splitlines() if l.startswith(key))

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def n_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def get(self, path):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            got = b""
            while piece := s.recv(65536):
                got += piece
        return got.decode()

    def gauge(self, name):
        return sum(float(l.rsplit(" ", 1)[1]) for l in self.get("/metrics").splitlines() if l.startswith(f"ingot:{name}{{"))

    def wait_idle(self, timeout):
        begin = time.monotonic()
        while self.gauge("num_requests_running") + self.gauge("num_requests_waiting") + self.gauge("kv_cache_usage_perc") > 0:
            assert time.monotonic() - begin < timeout, "the engine still has work"
            time.sleep(0.02)
        return time.monotonic() - begin

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def load(build, server, *args):
    cpus = sorted(os.sched_getaffinity(0))
    return json.loads(subprocess.run(["taskset", "-c", str(cpus[-1]), build / "sse_load", str(server.port), *map(str, args)], capture_output=True, text=True).stdout)


def no_harm(got):
    return got["wrong"] == got["short"] == 0 and got["done"] == got["streams"]


def row1(build, scale):
    """Streams of 400 tokens at 20 a second each: none lost, doubled or mixed; gap p99 <= 75 ms, max <= 250 ms."""
    n = max(20, int(1000 * scale))
    server = Server(build, 50_000, n)
    before, cpu = server.status("VmRSS"), server.cpu_s()
    got = load(build, server, n, 400)
    got |= {"rss_kib_per_stream": round((server.status("VmHWM") - before) / n, 1), "server_cpu_share": round((server.cpu_s() - cpu) / got["seconds"], 3)}
    return got, no_harm(got) and got["gap_p99_ms"] <= 75 and got["gap_max_ms"] <= 250 and server.stop() == 0


def row2(build, scale):
    """The same flat out: at least 30,000 events a second, nothing lost."""
    n = max(20, int(1000 * scale))
    server = Server(build, 0, n)
    got = load(build, server, n, 400)
    return got, no_harm(got) and got["events_per_s"] >= 30_000 and server.stop() == 0


def row5(build, scale):
    """200 live streams and 50 readers that never read: the live ones' p99 as without them (10 %, and 2 ms of noise)."""
    n, n_stalled = max(20, int(200 * scale)), max(5, int(50 * scale))
    server = Server(build, 20_000, n + n_stalled, n_ctx=4096)
    alone = load(build, server, n, 300)
    server.wait_idle(5)
    rss = server.status("VmRSS")
    got = load(build, server, n, 300, n_stalled)
    got |= {"alone_p99_ms": alone["gap_p99_ms"], "rss_growth_kib": server.status("VmRSS") - rss}
    server.wait_idle(10)
    return got, no_harm(got) and got["gap_p99_ms"] <= 1.1 * alone["gap_p99_ms"] + 2 and server.stop() == 0


def row6(build, scale):
    """Resets at random phases beside 100 checked streams: none harmed, gauges and descriptors back within a second."""
    server = Server(build, 20_000, 1000)
    files = server.n_files()
    got = load(build, server, 100, max(100, int(1000 * scale)), 0, 500)
    got["idle_after_s"] = round(server.wait_idle(5), 2)
    time.sleep(0.5)
    got["files_left"] = server.n_files() - files
    return got, no_harm(got) and got["idle_after_s"] <= 1 and got["files_left"] <= 1 and server.stop() == 0


def row16(build, scale):
    """SIGTERM under streams, again and again: none is cut, exit code 0."""
    runs, cut, codes = max(3, int(100 * scale)), 0, []
    for _ in range(runs):
        server = Server(build, 2_000, 200)
        client = subprocess.Popen([build / "sse_load", str(server.port), "200", "100"], stdout=subprocess.PIPE, text=True)
        while server.gauge("num_requests_running") < 200:
            pass
        codes.append(server.stop())
        got = json.loads(client.communicate()[0])
        cut += got["short"] + got["wrong"]
    return {"runs": runs, "cut": cut, "codes": sorted(set(codes))}, cut == 0 and set(codes) == {0}


def row15(build, scale):
    """kill -9 at random points under load: the next one starts and answers, on the same port, within 2 s."""
    runs, slowest, port = max(5, int(200 * scale)), 0.0, None
    for i in range(runs):
        begin = time.monotonic()
        server = Server(build, 1_000, 50)
        assert "200 OK" in server.get("/health")
        slowest = max(slowest, time.monotonic() - begin)
        client = subprocess.Popen([build / "sse_load", str(server.port), "50", "200"], stdout=subprocess.DEVNULL)
        time.sleep((i * 37 % 200) / 1000)
        server.process.kill()
        server.process.wait()
        client.wait()
    return {"runs": runs, "slowest_start_s": round(slowest, 2)}, slowest <= 2


ROWS = {"1": row1, "2": row2, "5": row5, "6": row6, "15": row15, "16": row16}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW")
    args = parser.parse_args()
    failed = 0
    for name in args.rows or ROWS:
        figure, good = ROWS[name](args.build.resolve(), args.scale)
        print(json.dumps({"row": name, "rule": ROWS[name].__doc__, "good": good, **figure}), flush=True)
        failed += not good
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
