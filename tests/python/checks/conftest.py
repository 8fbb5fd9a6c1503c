import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from ingot import Model

DATA = pathlib.Path(__file__).parents[2] / "data"


@pytest.fixture(scope="session")
def model():
    with Model.load(n_ctx=512, n_threads=2) as made:
        yield made


@pytest.fixture(scope="session")
def golden():
    """A model with what transformers says of it: facts and logits [n_tokens, n_vocab]."""
    return json.loads((DATA / "models" / "llama.json").read_text()), np.load(DATA / "models" / "llama.npy")


@pytest.fixture(scope="session")
def program():
    def run(*arguments, ok=True, **options):
        done = subprocess.run([sys.executable, "-m", "ingot", *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)
        assert not ok or done.returncode == 0, done.stderr
        return done
    assert "INGOT_LIBRARY" not in os.environ
    return run
