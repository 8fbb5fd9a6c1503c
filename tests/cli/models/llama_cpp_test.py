"""Every kind of model directory, converted to GGUF, gives the results of transformers in llama.cpp (PyPI's xllamacpp,
installed once into an environment next to the program). Skipped if PyPI cannot be reached."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
sys.path.append(str(SOURCE / "tests" / "server"))
from tools import python_with  # noqa: E402

DATA = SOURCE / "tests" / "data"
SLOW = float(os.environ.get("INGOT_SLOW", 1))
# (folder of the directories, folder of the golden data, kind of result, largest difference). llama.cpp rounds keys and
# values to F16.
KINDS = {"hf": ("models", "logits", 0.1), "encoders": ("encoders", "vectors", 2e-3), "rankers": ("rankers", "scores", 5e-3)}

# What llama.cpp says or does to the file of a tiny model with sizes that it does not expect. Files of published models
# have other sizes.
UNUSUAL = {
    "hf/deepseek2_lite": "key not found in model: deepseek2.attention.q_lora_rank",  # only models of 26 or 27 layers lack it
    "hf/deepseek2_groups": None,  # chooses the groups of experts in another way
    "hf/exaone4": None,  # only models of 64 layers have windows
    "hf/gpt_oss": None,  # as the file that the package gguf has written
    "hf/mistral4": None, "hf/qwen3_tied_yarn": None,  # it takes YaRN's beta_fast and beta_slow from its flags, not from the file
    "hf/phimoe": "key not found in model: phimoe.attention.layer_norm_rms_epsilon",  # the key of another kind of norm
    "hf/starcoder2": None,  # has no windows there
    "hf/rwkv7": None,  # its kernels expect heads of 64
    "hf/olmoe": "attn_k_norm.weight' has wrong shape",
    "hf/phi3": "_Map_base::at", "hf/phi3_long": "_Map_base::at", "hf/phi3_short": "_Map_base::at",  # the vocabulary lacks Phi's tokens
    "hf/qwen35": "attn_qkv.weight' has wrong shape", "hf/qwen35moe": "attn_qkv.weight' has wrong shape", "hf/qwen3next": "attn_qkv.weight' has wrong shape",
    "rankers/qwen3_score": "exceeds the available context size",
}
CASES = sorted(f"{kind}/{path.name}" for kind in KINDS for path in (DATA / kind).iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def python():
    return python_with("xllamacpp", "numpy", room="llama-cpp-venv")


@pytest.mark.parametrize("case", CASES)
def test_llama_cpp_reads_what_convert_writes(case, python, tmp_path):
    kind, name = case.split("/")
    golden, results, bound = KINDS[kind]
    file = tmp_path / "model.gguf"
    converted = subprocess.run([os.environ["INGOT"], "convert", DATA / kind / name, file], capture_output=True, text=True, timeout=120 * SLOW)
    assert converted.returncode == 0, converted.stderr
    checked = subprocess.run([python, "-B", pathlib.Path(__file__).parent / "llama_cpp_check.py", results, file, DATA / golden / f"{name}.json"],
                             capture_output=True, text=True, timeout=120 * SLOW, env=os.environ | {"GGML_NO_BACKTRACE": "1"})
    found = re.search(r"^difference (\S+)$", checked.stdout, re.M)
    fits = checked.returncode == 0 and found and float(found[1]) < bound
    output = checked.stdout[-500:] + checked.stderr[-3000:]
    if "llama.cpp cannot load the file: " in converted.stderr or "llama.cpp computes other results" in converted.stderr:
        assert not fits, "the warning is wrong: " + converted.stderr
    elif case in UNUSUAL:
        assert not fits, "llama.cpp reads this file now: remove it from UNUSUAL"
        assert (UNUSUAL[case] or "difference") in checked.stdout + checked.stderr, output
    else:
        assert fits, output
