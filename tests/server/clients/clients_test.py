"""Real clients: the openai, anthropic and ollama packages, LangChain's, Pydantic AI, Instructor and LiteLLM. They are
installed once, into separate environments next to the program. Skipped if PyPI cannot be reached. INGOT_CLIENTS_PYTHON
names a Python that has the packages already."""
import json
import os
import pathlib
import subprocess

import pytest
from conftest import SOURCE, caller, running
from tools import python_with

HERE = pathlib.Path(__file__).parent


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
    with running("--api-key", "sesame", "--max-seqs", 1, "--queue", 1) as limited, caller() as calls:
        assert check(python, HERE / "clients_check.py", server.url, encoder.url, limited.url, calls) == 17


def test_langchain(server):
    assert check(python_with("langchain-openai>=0.3", "langchain>=1"), HERE / "langchain_check.py", server.url) == 6


def test_pydantic_ai(server):
    assert check(python_with("pydantic-ai-slim[openai,anthropic]>=1"), HERE / "pydantic_ai_check.py", server.url) == 5


# These two need an older openai than the others.
def test_instructor(server):
    assert check(python_with("instructor>=1.10", room="clients-venv-2"), HERE / "instructor_check.py", server.url) == 3


def test_litellm(server, encoder):
    with caller() as calls:
        assert check(python_with("mcp>=1", "litellm>=1.70", room="clients-venv-2"), HERE / "litellm_check.py", server.url, encoder.url, calls) == 10


def test_ollama(server, encoder):
    with caller() as calls:
        assert check(python_with("ollama>=0.6"), HERE / "ollama_check.py", server.url, encoder.url, calls) == 9


# Calls each operation with every value that its schema names, and with random values. Each answer must have a status
# and a body of the schema, and no status 5xx. The first phase sends the same requests each time, and also checks that
# values that break the schema are refused.
@pytest.mark.parametrize("phase", ["coverage", "fuzzing"])
@pytest.mark.parametrize("kind", ["writer", "encoder"])
def test_schemathesis(kind, phase, tmp_path):
    python = python_with("schemathesis>=4")
    excluded = "positive_data_acceptance" + (",negative_data_rejection" if phase == "fuzzing" else "")  # a template may refuse what the schema has
    model = {"writer": SOURCE / "models" / "demo.gguf", "encoder": SOURCE / "tests" / "data" / "encoders" / "bert.gguf"}[kind]
    with running(model, "--pin", model.stem, "--max-seqs", 8, "--slot-save-path", tmp_path) as server:  # pinned, or a request would unload it
        command = [python.parent / "schemathesis", "run", f"{server.url}/openapi.json", "--phases", phase, "--max-examples", "15", "--checks", "all",
                   "--exclude-checks", excluded, "--suppress-health-check", "all", "--request-timeout", "120"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=os.environ | {"NO_COLOR": "1"}, cwd=python.parent)
    paths = json.loads((SOURCE / "src" / "server" / "web" / "openapi.json").read_text())["paths"]
    n_operations = sum(method in ("get", "post", "put", "delete") for path in paths.values() for method in path)
    assert done.returncode == 0 and f"Tested: {n_operations}" in done.stdout, done.stdout[-20000:] + done.stderr
