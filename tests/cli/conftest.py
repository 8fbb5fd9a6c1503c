"""Starts the program for its tests. INGOT names the program, INGOT_SOURCE the source tree."""
import os
import pathlib
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
DATA = SOURCE / "tests" / "data"


@pytest.fixture
def ingot():
    """ingot(*args, input=None, ok=True) -> CompletedProcess with text output; checks the exit code when ok is set."""

    def run(*args, input="", ok=True, timeout=500, text=True):
        done = subprocess.run([os.environ["INGOT"], *map(str, args)], input=input, capture_output=True, text=text, timeout=timeout)
        if ok:
            assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def models():
    return DATA / "models"
