"""Events that do not affect a server: a full disk, and signals without a meaning for it. Also the figures of the
cache."""
import json
import re
import signal


def test_a_full_disk_costs_lines_of_the_log_only(start):
    server = start("--access-log", "/dev/full", "--trace", "/dev/full")
    for _ in range(5):
        assert server.chat(max_tokens=40).status == 200
    assert server.get("/health").status == 200


def test_the_trace_has_every_step(start, tmp_path):
    """The trace for Perfetto: the times of every step, each once."""
    path = tmp_path / "trace.json"
    server = start("--access-log", "none", "--trace", path)
    server.chat(max_tokens=20, ignore_eos=True, speculate="off")  # one token per step
    n_steps = server.metric("steps_total")
    assert server.stop() == 0
    events = json.loads(path.read_text())
    steps = {e["args"]["step"] for e in events if "step" in e.get("args", {})}
    assert len(steps) == n_steps >= 20 and all(e["dur"] >= 0 and e["ts"] >= 0 for e in events if e["ph"] == "X")


def test_signals_that_mean_nothing(start):
    server = start("--access-log", "none")
    for name in ("SIGHUP", "SIGPIPE", "SIGUSR1", "SIGCHLD", "SIGWINCH"):
        server.process.send_signal(getattr(signal, name))
        assert server.chat(max_tokens=2).status == 200, name
    assert server.process.poll() is None


def test_blocks_are_counted_by_use(server):
    server.chat(max_tokens=3)
    text = server.get("/metrics").body.decode()
    blocks = {use: int(n) for use, n in re.findall(r'ingot:kv_blocks\{.*use="(\w+)"\} (\d+)', text)}
    assert set(blocks) == {"held", "cached", "free"} and blocks["cached"] > 0
    assert sum(blocks.values()) == int(re.search(r'num_gpu_blocks="(\d+)"', text)[1])
    assert int(re.search(r'ingot:device_memory_bytes\{.*device="cpu"\} (\d+)', text)[1]) > 1e6
    assert re.search(r'ingot:state_slots\{.*use="cached"\} 0', text) and "ingot:window_blocks_released_total{" in text
