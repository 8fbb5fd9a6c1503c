"""Real clients: the openai and anthropic packages, in an environment of their own beside the program, made once. Skipped where PyPI
cannot be reached; INGOT_CLIENTS_PYTHON names a Python that has them already."""
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import SOURCE

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def python():
    if given := os.environ.get("INGOT_CLIENTS_PYTHON"):
        return given
    folder = pathlib.Path(os.environ["INGOT"]).parent / "clients-venv"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True)
        if made.returncode == 0:
            made = subprocess.run([python, "-m", "pip", "-q", "install", "--retries", "1", "openai>=1.99", "anthropic>=0.60"], capture_output=True, text=True, timeout=300)
        if made.returncode != 0:
            pytest.skip("the packages openai and anthropic cannot be installed here: " + (made.stdout + made.stderr).strip()[-300:])
        ready.touch()
    return python


def test_openai_and_anthropic(server, start, python):
    encoder = start(SOURCE / "tests" / "data" / "encoders" / "bert", "--access-log", "none")
    done = subprocess.run([python, "-B", HERE / "clients_check.py", server.url, encoder.url], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok") == 9
