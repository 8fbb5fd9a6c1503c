"""Real clients: the openai and anthropic packages, LangChain's and LiteLLM, in an environment of their own beside the program, made once. Skipped
where PyPI cannot be reached; INGOT_CLIENTS_PYTHON names a Python that has them already."""
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import SOURCE, running

HERE = pathlib.Path(__file__).parent


def skip_unless(command, what):
    try:
        made = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{what}: this takes too long here")
    if made.returncode != 0:
        pytest.skip(f"{what} cannot be had here: " + (made.stdout + made.stderr).strip()[-300:])


def python_with(*packages):
    if given := os.environ.get("INGOT_CLIENTS_PYTHON"):
        return given
    folder = pathlib.Path(os.environ["INGOT"]).parent / "clients-venv"
    python, ready = folder / "bin" / "python", folder / ("ready-" + packages[0].split(">")[0])
    if not python.exists():
        skip_unless([sys.executable, "-m", "venv", folder], "a virtual environment")
    if not ready.exists():
        skip_unless([python, "-m", "pip", "-q", "install", "--retries", "1", *packages], ", ".join(packages))
        ready.touch()
    return python


def check(python, *args):
    done = subprocess.run([python, "-B", *args], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return sum(line.endswith(" ok") for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def encoder():
    with running(SOURCE / "tests" / "data" / "encoders" / "bert") as made:
        yield made


def test_openai_and_anthropic(server, encoder):
    python = python_with("openai>=1.99", "anthropic>=0.60")
    assert check(python, HERE / "clients_check.py", server.url, encoder.url) == 9


def test_langchain(server):
    assert check(python_with("langchain-openai>=0.3"), HERE / "langchain_check.py", server.url) == 4


def test_litellm(server, encoder):
    assert check(python_with("litellm>=1.70"), HERE / "litellm_check.py", server.url, encoder.url) == 5
