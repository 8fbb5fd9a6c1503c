"""Several ranks run one model: threads of one process (--tp), or processes that mpirun starts. The tokens equal those
of one rank. Ranks with different settings are refused. A rank that dies or hangs ends all ranks."""
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

def test_processes_write_the_text_of_one(ingot, mpirun):
    done = run(mpirun(2, "run", *PROMPT, "--json", "--tp", 2))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["token_ids"] == token_ids(ingot)


@pytest.mark.parametrize("name, flags", [("qwen35moe", []), ("deepseek2_lite", []), ("olmo2", []), ("gpt_oss", ["--ep"])])
def test_processes_and_threads_agree_on_all_kinds_of_layers(ingot, mpirun, models, name, flags, tmp_path):
    args = ["logits", models / (name + ".gguf"), "--tokens", "5,6,7,8,9,10,11", "--kv-type", "f32", "--device", "ref", "--tp", 2, *flags]
    ingot(*args, "-o", tmp_path / "threads.npy")
    done = run(mpirun(2, *args, "-o", tmp_path / "processes.npy"))
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


def test_the_number_of_processes_is_that_of_tp(mpirun):
    done = run(mpirun(2, "run", *PROMPT))
    assert done.returncode == 2 and "2 processes were started together, but --tp is 1: use --tp 2" in done.stderr, done.stderr
    done = run(mpirun(2, "run", *PROMPT, "--tp", 2, "--pp", 2))
    assert done.returncode == 2 and "2 processes were started together: each is a rank of --tp, so leave out --pp" in done.stderr, done.stderr


def other_rank(mpirun, first, second):
    """The command of two processes with different arguments."""
    words = mpirun(1, *first)
    return [*words, ":", "-n", "1", PROGRAM, *map(str, second)]


def test_ranks_that_differ_are_refused_by_name(mpirun, models):
    same = ["run", *PROMPT, "--tp", 2]
    for first, second, error in [
        ([models / "qwen3.gguf"], [models / "llama.gguf"], r"rank 1 of 2 \(host \S+, process \d+\) has another model file than rank 0"),
        ([], ["-c", 128], r"rank 1 of 2 \(host \S+, process \d+\) has other options than rank 0 \(.*context 128.*, not .*context 0"),
        ([models / "mixtral.gguf", "--ep"], [models / "mixtral.gguf"], r"rank 1 of 2 \(host \S+, process \d+\) has other options than rank 0 \(.*, not .*, whole experts\)"),
    ]:
        done = run(other_rank(mpirun, [*same, *first], [*same, *second]))
        assert done.returncode == 1, done.stderr
        lines = [line for line in done.stderr.splitlines() if line.startswith("ingot:")]
        assert len(lines) == 1 and re.search(error, lines[0]), done.stderr


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

    def complete(self, n):
        connection = http.client.HTTPConnection(self.url, timeout=60 * SLOW)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": n, "temperature": 0, "ignore_eos": True}), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())["choices"][0]["text"]

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


@pytest.fixture
def job(mpirun, tmp_path):
    jobs = []

    def start(*args):
        jobs.append(Job(mpirun(2, "serve", "--port", 0, "--tp", 2, *EXACT, *args), tmp_path))
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
    os.kill(server.pids[0], signal.SIGTERM)
    _, code = server.end()
    assert code == 0, server.log.read_text()


def test_a_killed_rank_ends_all(job):
    server = job()
    server.complete(4)
    os.kill(server.pids[1], signal.SIGKILL)
    seconds, code = server.end()
    log = server.log.read_text()
    assert seconds < 10 * SLOW and code != 0 and re.search(rf"rank 1\b|PID {server.pids[1]}\b", log), "mpirun names it: " + log


@pytest.mark.parametrize("busy", [False, True])
def test_a_rank_that_hangs_ends_all(job, busy):
    server = job("--rank-timeout", 3)
    server.complete(4)
    os.kill(server.pids[1], signal.SIGSTOP)
    if busy:
        with pytest.raises((OSError, http.client.HTTPException, KeyError)):
            server.complete(100)
    seconds, code = server.end()
    log = server.log.read_text()
    assert seconds < 10 * SLOW and code == 71, (code, log)
    assert re.search("^ingot: .*rank 1 of 2 has (sent no message|not answered)", log, re.M), log
