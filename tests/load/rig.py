"""Shared by the rows of run.py: a server on one CPU, its gauges, and the checked load of sse_load on another CPU."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

CPUS = sorted(os.sched_getaffinity(0))


class Server:
    """A program that prints or logs its address when it listens."""

    def __init__(self, *command, pattern=r"(http://\S+)", pinned=True, env=None):
        pin = ["taskset", "-c", str(CPUS[0])] if pinned and len(CPUS) > 1 else []
        begin = time.monotonic()
        # AddressSanitizer keeps up to 256 MiB of freed memory, which is not the server's memory.
        quarantine = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"}
        self.process = subprocess.Popen([*pin, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=os.environ | quarantine | (env or {}))
        self.log = []
        for line in self.process.stdout:
            self.log.append(line)
            if match := re.search(r"(http://[^\s;/]+)", line):
                self.port = int(match[1].rsplit(":", 1)[1])
            if re.search(pattern, line):
                break
        else:
            raise AssertionError(f"the server did not start: {self.log}")
        self.start_s = time.monotonic() - begin
        threading.Thread(target=lambda: self.log.extend(self.process.stdout), daemon=True).start()

    def status(self, key):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(key))

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def n_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def get(self, path, connection=None):
        c = connection or self.connection()
        c.request("GET", path)
        response = c.getresponse()
        body = response.read().decode()
        if not connection:
            c.close()
        assert response.status == 200, (response.status, body)
        return body

    def post(self, path, body, headers=None, connection=None):
        c = connection or self.connection()
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"} | (headers or {}))
        response = c.getresponse()
        answer = json.loads(response.read())
        if not connection:
            c.close()
        assert response.status == 200, (response.status, answer)
        return answer

    def gauge(self, name, connection=None):
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.get("/metrics", connection).splitlines() if line.startswith(f"ingot:{name}{{"))

    def wait_idle(self, timeout):
        begin = time.monotonic()
        c = self.connection()
        while self.gauge("num_requests_running", c) + self.gauge("num_requests_waiting", c) + self.gauge("kv_cache_usage_perc", c) > 0:
            assert time.monotonic() - begin < timeout, "the engine still has work"
            time.sleep(0.01)
        c.close()
        return time.monotonic() - begin

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(90)


class Rig:
    """The programs of a build, and the scale of the rows."""

    def __init__(self, build, scale):
        self.load_folder, self.ingot, self.scale = build / "tests" / "load", build / "ingot", scale
        self.servers, self.pinned = [], True

    def n(self, full, least=1):
        return max(least, int(full * self.scale))

    def fake(self, **options):
        flags = []
        for name, value in options.items():
            for one in value if isinstance(value, list) else [value]:
                flags += [f"--{name.replace('_', '-')}", one]
        self.servers.append(Server(self.load_folder / "fake_server", *flags, pinned=self.pinned))
        return self.servers[-1]

    def demo(self, *flags, **options):
        self.servers.append(Server(self.ingot, "serve", "--port", 0, "--access-log", "none", *flags, pattern="server is ready", **options))
        return self.servers[-1]

    def begin_load(self, server, **options):
        flags = [text for name, value in {"port": server.port, **options}.items() for text in (f"--{name}", str(value))]
        pin = ["taskset", "-c", str(CPUS[-1])] if self.pinned and len(CPUS) > 1 else []
        return subprocess.Popen([*pin, self.load_folder / "sse_load", *flags], stdout=subprocess.PIPE, text=True)

    def load(self, server, **options):
        return json.loads(self.begin_load(server, **options).communicate()[0])

    def close(self):
        for server in self.servers:
            with contextlib.suppress(ProcessLookupError):
                server.process.kill()
            server.process.wait()


class Prober:
    """Requests /health continuously and records the times."""

    def __init__(self, server, interval=0.02):
        self.ms, self.stop = [], threading.Event()
        self.thread = threading.Thread(target=self.run, args=(server, interval))

    def run(self, server, interval):
        c = server.connection()
        while not self.stop.is_set():
            begin = time.monotonic()
            server.get("/health", c)
            self.ms.append((time.monotonic() - begin) * 1e3)
            time.sleep(interval)
        c.close()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def percentile(values, share):
    return sorted(values)[int(share * (len(values) - 1))] if values else 0.0


def slope_per_minute(samples):
    """The slope of (seconds, value) pairs, by least squares."""
    n = len(samples)
    mean_t, mean_v = sum(t for t, _ in samples) / n, sum(v for _, v in samples) / n
    spread = sum((t - mean_t) ** 2 for t, _ in samples)
    return 60 * sum((t - mean_t) * (v - mean_v) for t, v in samples) / spread if spread else 0.0
