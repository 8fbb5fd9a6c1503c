"""The program's calls to its terminal."""
import os
import subprocess

import pytest

LIBRARY = os.environ.get("INGOT_FAIL_CALLS", "")


@pytest.mark.skipif(not LIBRARY, reason="not with a sanitizer, which wants to be loaded first")
@pytest.mark.parametrize("args", [["logits", "{}", "-p", "one two three", "-o", "{}.npy"], ["quantize", "{}", "{}.out", "f16"]])
def test_what_standard_error_is_is_asked_once(args, models, tmp_path):
    """Progress is reported for each of 25 tensors: isatty at the sixth call ends the program (fail_calls.cc)."""
    model = tmp_path / "model.gguf"
    model.write_bytes((models / "qwen3.gguf").read_bytes())
    env = os.environ | {"LD_PRELOAD": LIBRARY, "FAIL_CALL": "isatty", "FAIL_AT": "6", "FAIL_ARMED": "1"}
    done = subprocess.run([os.environ["INGOT"], *(a.format(model) for a in args)], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
