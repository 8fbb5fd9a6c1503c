"""Several ranks run one model: threads of one process (--tp), or processes that mpirun starts (--tp, --pp, or both). The
tokens equal those of one rank. Ranks with different settings are refused. A rank that dies or hangs ends all ranks."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from conftest import DATA

PROGRAM = os.environ["INGOT"]
MODULE = pathlib.Path(PROGRAM).with_name("libingot_mpi.so")
SLOW = float(os.environ.get("INGOT_SLOW", 1))
FAIL_CALLS = os.environ.get("INGOT_FAIL_CALLS", "")
# On ref, sums are in double, so ranks change no token. The CPU rounds activations, which may change the choice between
# two tokens of nearly equal probability.
EXACT = ["--device", "ref", "--kv-type", "f32"]
PROMPT = ["--raw", "-p", "Once upon a time", "--temp", "0", "-n", "60", "--ignore-eos", *EXACT]


def token_ids(ingot, *args):
    return json.loads(ingot("run", *PROMPT, "--json", *args).stdout)["token_ids"]


@pytest.fixture(scope="module")
def mpirun():
    """mpirun(n, *args) -> the command that starts n processes of ingot with any number of cores."""
    if not MODULE.exists() or not shutil.which("mpirun"):
        pytest.skip("this ingot was built without MPI, or there is no mpirun")
    says = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    own = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"] if "Open MPI" in says or "OpenRTE" in says else []
    return lambda n, *args: ["mpirun", *own, "-n", str(n), PROGRAM, *map(str, args)]


def run(command, timeout=120):
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout * SLOW, stdin=subprocess.DEVNULL)


# ---- threads ----

def test_two_ranks_write_the_text_of_one(ingot):
    one = token_ids(ingot)
    assert len(one) == 60 and token_ids(ingot, "--tp", 2) == one
    assert token_ids(ingot, "--tp", 2, "--pp", 2) == one  # two stages of two ranks
    sampled = [json.loads(ingot("run", "--raw", "-p", "A fox", "-n", 40, "-s", 7, "--json", *EXACT, "--tp", n).stdout)["text"] for n in (1, 2)]
    assert sampled[0] == sampled[1]


def test_auto_is_chosen_once_for_all_ranks(ingot, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    args = ["run", "--raw", "-p", "A fox", "-n", 20, "--temp", 0, "--json", "--tp", 2]
    done = ingot(*args, "--device", "auto")
    assert done.stderr.count("using the CPU") == 1
    assert json.loads(done.stdout)["token_ids"] == json.loads(ingot(*args, "--device", "cpu").stdout)["token_ids"]


def test_a_trace_has_the_ops_of_all_ranks(ingot, tmp_path):
    trace = tmp_path / "trace.json"
    ingot("run", "-p", "Hello", "-n", 4, "--device", "cpu", "--tp", 2, "--trace", trace)
    events = json.loads(trace.read_text())
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    ops = [(tracks[e["tid"]], e["name"]) for e in events if e["ph"] == "X"]
    counts = [sum(op == (track, "attention") for op in ops) for track in ("ops", "ops of rank 1")]
    assert counts[0] == counts[1] > 0


def test_what_cannot_be_divided_is_refused(ingot, models):
    for args, error in [
        (["--tp", 64], "64 ranks are too many for"),
        (["--device", "cpu,cpu", "--tp", 3], "--device cpu,cpu names 2 devices, but --tp is 3"),
        (["--device", "cpu,cpu,cpu", "--tp", 2, "--pp", 2], "names 3 devices, but --tp is 2 and --pp is 2: name one device for each rank of each stage"),
        (["--device", "cuda:1,cuda:1", "--tp", 2], "names a GPU twice"),
        ([models / "qwen3moe_q8_0.gguf", "--tp", 2], "its experts' feed-forward can be divided into at most 1 part of whole blocks"),
        ([models / "qwen3moe_q8_0.gguf", "--tp", 2], "but ranks can have whole experts: use ep"),
        (["--tp", 2, "--ep"], "ep needs a model with experts, but this model has none"),
        ([models / "mixtral.gguf", "--ep"], "--ep divides the experts among the ranks of --tp: give --tp too"),
        (["--tp", 0], "--tp"),
    ]:
        done = ingot("run", "-p", "x", *args, ok=False)
        assert done.returncode == 2 and error in done.stderr and done.stderr.count("\n") == 1, done.stderr


# Experts of one block, which two ranks cannot divide; and an odd number of experts.
@pytest.mark.parametrize("name", ["qwen3moe_q8_0", "mixtral"])
def test_ranks_with_whole_experts_give_the_logits_of_one(ingot, models, name, tmp_path):
    args = ["logits", models / (name + ".gguf"), "--tokens", "5,6,7,8,9,10,11", "--kv-type", "f32", "--device", "ref"]
    ingot(*args, "-o", tmp_path / "one.npy")
    ingot(*args, "--tp", 2, "--ep", "-o", tmp_path / "two.npy")
    one, two = (np.load(tmp_path / f"{n}.npy") for n in ("one", "two"))
    assert one.shape == two.shape and np.abs(one - two).max() < 1e-4


def test_bench_knows_ranks(ingot):
    for args, backend in ((["--tp", 2], "cpu x2"), (["--tp", 2, "--pp", 2], "cpu x2, 2 stages")):
        rows = json.loads(ingot("bench", "-p", 8, "-n", 4, "-r", 1, "-o", "json", *args).stdout)
        assert {row["backend"] for row in rows} == {backend} and all(row["avg_ts"] > 0 for row in rows)
    sums = json.loads(ingot("bench", "reduce", "--tp", 2, "--rows", 16, "-r", 2, "-o", "json").stdout)
    assert [row["bytes"] for row in sums] == [16384, 65536, 262144] and all(row["sum_us"] > 0 and row["added_us"] > 0 for row in sums)


# ---- processes ----

@pytest.mark.parametrize("n, flags", [(2, ["--tp", 2]), (2, ["--pp", 2]), (3, ["--pp", 3]), (4, ["--tp", 2, "--pp", 2]), (2, ["--pp", 2, "--layers-split", "3,9"])])
def test_processes_write_the_text_of_one(ingot, mpirun, n, flags):
    done = run(mpirun(n, "run", *PROMPT, "--json", *flags))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["token_ids"] == token_ids(ingot)


# The stages of a pipeline compute the bits of one device.
@pytest.mark.parametrize("name, flags, in_one", [
    ("qwen35moe", ["--tp", 2], ["--tp", 2]), ("deepseek2_lite", ["--tp", 2], ["--tp", 2]), ("olmo2", ["--tp", 2], ["--tp", 2]),
    ("gpt_oss", ["--tp", 2, "--ep"], ["--tp", 2, "--ep"]), ("qwen35moe", ["--pp", 2], []), ("gpt_oss", ["--pp", 2], [])])
def test_processes_and_threads_agree_on_all_kinds_of_layers(ingot, mpirun, models, name, flags, in_one, tmp_path):
    args = ["logits", models / (name + ".gguf"), "--tokens", "5,6,7,8,9,10,11", "--kv-type", "f32", "--device", "ref"]
    ingot(*args, *in_one, "-o", tmp_path / "threads.npy")
    done = run(mpirun(2, *args, *flags, "-o", tmp_path / "processes.npy"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "threads.npy").read_bytes() == (tmp_path / "processes.npy").read_bytes()


def test_without_its_module_the_program_runs_alone_only(tmp_path):
    linked = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True).stdout
    assert "libmpi" not in linked
    program = tmp_path / "ingot"
    shutil.copy(PROGRAM, program)
    assert run([program, "run", *PROMPT]).returncode == 0
    for variables in ({"OMPI_COMM_WORLD_SIZE": "3"}, {"PMI_SIZE": "3"}, {"PMIX_RANK": "0", "SLURM_NTASKS": "3"}):
        done = subprocess.run([program, "run", *PROMPT, "--tp", "3"], env=os.environ | variables, capture_output=True, text=True)
        assert done.returncode == 1 and "3 processes were started together, but libingot_mpi.so cannot be loaded (it is not there)" in done.stderr
    (tmp_path / "libingot_mpi.so").write_text("no library")
    done = subprocess.run([program, "run", *PROMPT, "--tp", "3"], env=os.environ | {"PMI_SIZE": "3"}, capture_output=True, text=True)
    assert done.returncode == 1 and re.search(r"cannot be loaded \(.*(invalid ELF header|file too short)", done.stderr), done.stderr


def test_the_number_of_processes_is_that_of_ranks_and_stages(mpirun):
    for flags, error in (([], "--tp is 1 and --pp is 1: use --tp 2, or --pp 2, or both so that their product is 2"),
                         (["--tp", 2, "--pp", 2], "--tp is 2 and --pp is 2: use --tp 2, or --pp 2,")):
        done = run(mpirun(2, "run", *PROMPT, *flags))
        assert done.returncode == 2 and "2 processes were started together, but " + error in done.stderr, done.stderr


def test_what_works_only_in_one_process_is_refused_before_loading(mpirun, tmp_path):
    for args, error in ((["serve", "--slot-save-path", tmp_path], "--slot-save-path works only with one rank in one process"),
                        (["run", "-p", "x", "--speculate", "mtp"], "a draft head needs a model on one device"),
                        (["run", "-p", "x", "--device", "cuda", "--gpu-layers", 1], "leave out the options that place layers or experts")):
        done = run(mpirun(2, *args, "--pp", 2))
        assert done.returncode == 2 and error in done.stderr, done.stderr


def other_rank(mpirun, first, second, before=()):
    """The command of two processes with different arguments. `before`: words before the second program."""
    words = mpirun(1, *first)
    return [*words, ":", "-n", "1", *before, PROGRAM, *map(str, second)]


def error_lines(done):
    return [line for line in done.stderr.splitlines() if line.startswith("ingot:")]


def test_ranks_that_differ_are_refused_by_name(mpirun, models):
    tp, pp = ["--tp", 2], ["--pp", 2]
    for both, first, second, error in [
        (pp, [models / "qwen3.gguf"], [models / "llama.gguf"], r"rank 1 of 2 \(host \S+, process \d+\) has another model file than rank 0"),
        ([], tp, pp, r"rank 1 of 2 \(host \S+, process \d+\) has other options than rank 0 \(.*, 2 stages, not "),
        (tp, [models / "qwen3.gguf"], [models / "llama.gguf"], r"rank 1 of 2 \(host \S+, process \d+\) has another model file than rank 0"),
        (tp, [], ["-c", 128], r"rank 1 of 2 \(host \S+, process \d+\) has other options than rank 0 \(.*context 128.*, not .*context 0"),
        (tp, [models / "mixtral.gguf", "--ep"], [models / "mixtral.gguf"], r"rank 1 of 2 \(host \S+, process \d+\) has other options than rank 0 \(.*, not .*, whole experts\)"),
    ]:
        done = run(other_rank(mpirun, ["run", *PROMPT, *both, *first], ["run", *PROMPT, *both, *second]))
        assert done.returncode == 1, done.stderr
        lines = error_lines(done)
        assert len(lines) == 1 and re.search(error, lines[0]), done.stderr


# An error of one rank while it loads ends all ranks, with one line that names the rank.
@pytest.mark.parametrize("flags", [["--tp", 2], ["--pp", 2]])
@pytest.mark.parametrize("command", [["run", *PROMPT], ["serve", "--port", 0, *EXACT]])
def test_a_rank_without_memory_ends_all(mpirun, command, flags):
    if not FAIL_CALLS:
        pytest.skip("a sanitizer replaces the allocator")
    before = ["env", f"LD_PRELOAD={FAIL_CALLS}", "FAIL_CALL=new", "FAIL_BYTES=500000", "FAIL_AT=1", "FAIL_ARMED=1"]
    done = run(other_rank(mpirun, [*command, *flags], [*command, *flags], before))  # the weights are larger
    assert done.returncode == 1, done.stderr
    assert [line for line in error_lines(done) if " listening " not in line] == ["ingot: rank 1 of 2: out of memory: use a smaller model or a smaller --ctx-size"]


@pytest.mark.parametrize("flags", [["--tp", 2], ["--pp", 2]])
def test_a_damaged_file_of_one_rank_ends_all(mpirun, models, tmp_path, flags):
    good = (models / "llama.gguf").read_bytes()
    for damaged, error in ((good[:-4096], "llama.gguf"), (b"no model", "llama.gguf")):
        (tmp_path / "llama.gguf").write_bytes(damaged)
        done = run(other_rank(mpirun, ["run", *PROMPT, models / "llama.gguf", *flags], ["run", *PROMPT, tmp_path / "llama.gguf", *flags]))
        lines = error_lines(done)
        assert done.returncode == 1 and len(lines) == 1 and lines[0].startswith("ingot: rank 1 of 2: ") and error in lines[0], done.stderr


class Job:
    """Two processes that serve the demo model, and their output."""

    def __init__(self, command, tmp_path):
        self.log = tmp_path / "log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.url = self.wait_for(r"listening on http://(\S+);")[1]
        self.wait_for("server is ready")
        by_rank = {self.rank_of(pid): pid for pid in self.below(self.process.pid) if os.path.samefile(f"/proc/{pid}/exe", PROGRAM)}
        self.pids = [by_rank["0"], by_rank["1"]]

    def below(self, pid):
        """The processes that pid has started. MPICH's mpirun has an intermediate process."""
        children = open(f"/proc/{pid}/task/{pid}/children").read().split()
        return [int(child) for child in children] + [p for child in children for p in self.below(child)]

    @staticmethod
    def rank_of(pid):
        words = open(f"/proc/{pid}/environ", "rb").read().decode(errors="replace").split("\0")
        return next(word.split("=")[1] for word in words if re.match("(OMPI_COMM_WORLD_RANK|PMI_RANK)=", word))

    def wait_for(self, pattern, timeout=60):
        deadline = time.monotonic() + timeout * SLOW
        while time.monotonic() < deadline:
            if match := re.search(pattern, self.log.read_text()):
                return match
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        raise AssertionError(f"{pattern}: {self.log.read_text()}")

    def ask(self, n, **fields):
        connection = http.client.HTTPConnection(self.url, timeout=60 * SLOW)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": n, "temperature": 0, "ignore_eos": True} | fields), {"Content-Type": "application/json"})
        return connection.getresponse()

    def complete(self, n, **fields):
        return json.loads(self.ask(n, **fields).read())["choices"][0]["text"]

    def end(self, timeout=60):
        """Returns the seconds until all processes have ended, and the exit code."""
        begin = time.monotonic()
        code = self.process.wait(timeout * SLOW)
        while any(map(self.runs, self.pids)):
            assert time.monotonic() < begin + timeout * SLOW
            time.sleep(0.02)
        return time.monotonic() - begin, code

    @staticmethod
    def runs(pid):
        try:
            return open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1][0] not in "ZX"  # nobody may wait for what mpirun left
        except OSError:
            return False


@pytest.fixture(params=["--tp", "--pp"])
def job(mpirun, tmp_path, request):
    jobs = []

    def start(*args, before=()):
        """`before`: words before the program of rank 1."""
        serve = ["serve", "--port", 0, request.param, 2, *EXACT, *args]
        jobs.append(Job(other_rank(mpirun, serve, serve, before) if before else mpirun(2, *serve), tmp_path))
        return jobs[-1]

    yield start
    for one in jobs:
        if one.process.poll() is None:
            for pid in [*one.pids, one.process.pid]:
                os.kill(pid, signal.SIGKILL)
            one.process.wait()


def test_a_server_of_two_processes(job, ingot):
    server = job()
    text = server.complete(40)
    assert text == json.loads(ingot("run", "--raw", "-p", "Once", "-n", 40, "--temp", 0, "--ignore-eos", "--json", *EXACT).stdout)["text"]
    with concurrent.futures.ThreadPoolExecutor(6) as several:
        assert set(several.map(server.complete, [40] * 6)) == {text}
    assert re.fullmatch(" [A-Za-z ]+", server.complete(8, grammar='root ::= " " [A-Za-z ]+'))
    os.kill(server.pids[0], signal.SIGTERM)
    _, code = server.end()
    assert code == 0, server.log.read_text()


# The answer that is being written is complete.
def test_sigterm_during_a_step_ends_all(job):
    server = job()
    answer = server.ask(60, stream=True)
    assert answer.readline().startswith(b"data: ")
    os.kill(server.pids[0], signal.SIGTERM)
    events = [line for line in answer.read().splitlines() if line.startswith(b"data: ")]
    assert events[-1] == b"data: [DONE]" and b'"length"' in b"".join(events)
    seconds, code = server.end()
    assert seconds < 10 * SLOW and code == 0, server.log.read_text()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_all(job, rank):
    server = job()
    server.complete(4)
    os.kill(server.pids[rank], signal.SIGKILL)
    seconds, code = server.end()
    log = server.log.read_text()
    assert seconds < 10 * SLOW and code != 0 and re.search(rf"rank {rank}\b|PID {server.pids[rank]}\b", log), "mpirun names it: " + log


@pytest.mark.parametrize("rank, busy", [(0, False), (1, False), (1, True)])
def test_a_rank_that_hangs_ends_all(job, rank, busy):
    server = job("--rank-timeout", 3)
    server.complete(4)
    os.kill(server.pids[rank], signal.SIGSTOP)
    if busy:
        with pytest.raises((OSError, http.client.HTTPException, KeyError)):
            server.complete(100)
    seconds, code = server.end()
    log = server.log.read_text()
    assert seconds < 10 * SLOW and code == 71, (code, log)
    assert re.search(f"^ingot: .*rank {rank} of 2 has (sent no message|not answered)", log, re.M), log


def test_a_rank_without_memory_in_a_step_ends_all(job):
    if not FAIL_CALLS:
        pytest.skip("a sanitizer replaces the allocator")
    server = job(before=["env", f"LD_PRELOAD={FAIL_CALLS}", "FAIL_CALL=new", "FAIL_EVERY=1"])
    server.complete(4)
    os.kill(server.pids[1], signal.SIGUSR2)
    server.wait_for("calls fail now")
    with pytest.raises((OSError, http.client.HTTPException, KeyError)):
        server.complete(100)
    seconds, code = server.end()
    log = server.log.read_text()
    assert seconds < 10 * SLOW and code in (1, 71), (code, log)  # 1: a message of rank 0 has no place
    assert re.search("^ingot: rank 1 of 2(:| is) out of memory", log, re.M), log
