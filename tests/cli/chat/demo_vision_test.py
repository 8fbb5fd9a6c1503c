"""The built-in model demo-vision on the command line."""
import json
import os
import subprocess
import sys

from conftest import SOURCE

sys.path.insert(0, str(SOURCE / "tests/server"))
from seen import CASES, PICTURES  # noqa: E402


def ingot(*args, input="", code=0):
    done = subprocess.run([os.environ["INGOT"], *map(str, args)], input=input, capture_output=True, text=True, timeout=500)
    assert done.returncode == code, done.stderr
    return done


def case_of(kind):
    return next(case for case in CASES if case["kind"] == kind)


def test_an_image_without_a_model_is_for_the_vision_demo():
    for kind in ("describe", "count", "word"):
        case = case_of(kind)
        done = ingot("run", "-i", PICTURES / case["picture"], "-p", case["question"], "--temp", "0")
        assert done.stdout.strip() == case["answer"]


def test_the_name_means_the_built_in_model(tmp_path):
    case = case_of("colour")
    args = ["--temp", "0", "-i", PICTURES / case["picture"], "-p", case["question"], "--json"]
    report = json.loads(ingot("run", "demo-vision", *args).stdout)
    assert report["text"].strip() == case["answer"] and report["image_tokens"] == 64
    outside = SOURCE / "models/demo-vision/demo-vision.gguf"
    assert json.loads(ingot("run", outside, *args).stdout)["text"] == report["text"], "mmproj.gguf lies beside the file"
    facts = json.loads(ingot("inspect", "demo-vision", "--json").stdout)
    assert facts["file"] == "(the vision demo)"


def test_in_a_chat():
    case = case_of("shape")
    done = ingot("chat", "demo-vision", "--temp", "0", input=f"/image {PICTURES / case['picture']}\n{case['question']}\n")
    assert case["answer"] in done.stdout


def test_the_text_demo_says_which_model_reads_images():
    done = ingot("run", "demo", "-i", PICTURES / "00.png", "-p", "x", code=1)
    assert "use one with a vision tower, such as demo-vision" in done.stderr
