"""A limit on processes: the program runs with fewer threads and a message, or ends with an error. It never aborts."""
import os
import pathlib
import random
import resource
import shutil
import subprocess
import tempfile

import pytest

SANITIZED = os.environ.get("INGOT_SLOW", "1") != "1"  # a sanitizer has its own threads

if os.geteuid() != 0:
    pytest.skip("the limit counts every process of a user: only root can run the program as a user who has no others", allow_module_level=True)
if SANITIZED:
    pytest.skip("a sanitizer starts a thread of its own, which aborts without one", allow_module_level=True)


@pytest.fixture(scope="module")
def program():
    """A copy of the program that any user may run."""
    folder = pathlib.Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copy(os.environ["INGOT"], folder / "ingot")
    (folder / "ingot").chmod(0o755)
    yield folder / "ingot"
    shutil.rmtree(folder)


def run_limited(program, n_most, *args):
    """Runs the program as a user with at most n_most processes and threads."""
    user = random.randint(200_000, 2_000_000_000)  # an id without a user
    limit = lambda: resource.setrlimit(resource.RLIMIT_NPROC, (n_most, n_most))
    return subprocess.run([program, *map(str, args)], user=user, group=user, extra_groups=[], preexec_fn=limit, capture_output=True, text=True, timeout=300, env={"HOME": "/"})


@pytest.mark.parametrize("n_most", range(1, 13))
def test_each_number_of_threads_gives_an_answer_or_an_error(program, n_most):
    done = run_limited(program, n_most, "run", "-p", "hi", "-n", "2", "-t", "8", "--device", "cpu")
    assert done.returncode in (0, 1), (done.returncode, done.stderr)
    lines = done.stderr.strip().splitlines()
    if n_most == 1:  # not even one worker
        assert done.returncode == 1 and "none of 7 threads could be started" in lines[-1] and "RLIMIT_NPROC is 1;" in lines[-1], done.stderr
    elif n_most <= 7:
        assert any("could not be started" in line and f"RLIMIT_NPROC is {n_most};" in line for line in lines), done.stderr
    if 3 <= n_most <= 7 or n_most >= 9:  # the caller, the workers, and room for the engine's thread, but none with 8
        assert done.returncode == 0 and done.stdout, done.stderr
    if n_most >= 9:
        assert "could not be started" not in done.stderr
