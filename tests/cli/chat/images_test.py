"""Images in `ingot run` and `ingot chat`, on the tiny SmolVLM of tests/data/vision."""
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import SOURCE

sys.path.insert(0, str(SOURCE / "tests/server"))
from drawn import png  # noqa: E402

MODEL = SOURCE / "tests/data/vision/smolvlm"
TEMPLATE = ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
            "{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}")
GOLDEN = json.loads((MODEL / "goldens.json").read_text())


def ingot(*args, ok=True, input=""):
    data = input if isinstance(input, bytes) else input.encode()
    done = subprocess.run([os.environ["INGOT"], *map(str, args)], input=data, capture_output=True, timeout=500)
    assert not ok or done.returncode == 0, done.stderr
    done.stdout, done.stderr = done.stdout.decode(errors="replace"), done.stderr.decode()
    return done


@pytest.fixture
def cat(tmp_path):
    path = tmp_path / "cat.png"
    path.write_bytes(png(*GOLDEN["prompts"][0]["sizes"][0], 0))
    return path


def run(*args, ok=True, **kwargs):
    return ingot("run", MODEL, "--chat-template", TEMPLATE, "-n", "1", "--temp", "0", *args, ok=ok, **kwargs)


def test_the_prompt_is_that_of_transformers(cat):
    report = json.loads(run("-i", cat, "-p", "the cat", "--json").stdout)
    golden = GOLDEN["prompts"][0]
    assert report["prompt_tokens"] == len(golden["tokens"]) and report["image_tokens"] == golden["n_vectors"]
    logits = golden["logits"][-1]
    assert report["token_ids"] == [logits.index(max(logits))]


def test_figures_say_what_the_image_took(cat):
    done = run("-i", cat, "-p", "the cat")
    assert f"1 image took {GOLDEN['prompts'][0]['n_vectors']} tokens, encoded in" in done.stderr


def test_several_images_and_standard_input(cat):
    report = json.loads(run("-i", cat, "--image", "-", "-p", "both", "--json", input=cat.read_bytes()).stdout)
    assert report["image_tokens"] == 2 * GOLDEN["prompts"][0]["n_vectors"]


def test_an_mmproj_file_is_found_beside_the_model(cat, tmp_path):
    whole = tmp_path / "m.gguf"
    ingot("convert", MODEL, whole)
    args = ["run", whole, "--chat-template", TEMPLATE, "-n", "1", "-i", cat, "-p", "x", "--json"]
    assert "reads text only" in ingot(*args, ok=False).stderr
    shutil.copy(MODEL / "mmproj.gguf", tmp_path / "m-mmproj-f16.gguf")
    assert json.loads(ingot(*args).stdout)["image_tokens"] > 0
    assert "reads text only" in ingot(*args, "--no-images", ok=False).stderr
    (tmp_path / "m-mmproj-f16.gguf").rename(tmp_path / "elsewhere")
    assert json.loads(ingot(*args, "--mmproj", tmp_path / "elsewhere").stdout)["image_tokens"] > 0
    assert json.loads(ingot(*args, "-mm", tmp_path / "elsewhere").stdout)["image_tokens"] > 0


def test_a_broken_projector_beside_the_model_costs_a_warning(cat, tmp_path):
    whole = tmp_path / "m.gguf"
    ingot("convert", MODEL, whole)
    (tmp_path / "mmproj.gguf").write_bytes(b"GGUF broken")
    done = ingot("run", whole, "-p", "hello", "-n", "1")
    assert "the model reads text only, because its mmproj file cannot be read" in done.stderr
    named = ingot("run", whole, "-p", "hello", "-n", "1", "--mmproj", tmp_path / "mmproj.gguf", ok=False)
    assert named.returncode == 1 and "mmproj.gguf" in named.stderr


@pytest.mark.parametrize("args, words", [
    (["-i", "/nonexistent.png", "-p", "x"], "cannot open '/nonexistent.png'"),
    (["-i", str(MODEL / "config.json"), "-p", "x"], "this program reads JPEG"),
    (["-i", "-", "-f", "-"], "standard input is either the prompt, an image or a recording"),
])
def test_bad_images(args, words):
    done = run(*args, ok=False)
    assert done.returncode in (1, 2) and words in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_too_large(cat):
    assert "the limit is 10 pixels" in run("-i", cat, "-p", "x", "--image-max-pixels", "10", ok=False).stderr
    assert "1 image" in run("-i", cat, "-p", "x" * 20).stderr
    assert "give fewer or -c N" in run("-i", cat, "-p", "x", "-c", "32", ok=False).stderr


def test_raw_prompts_have_no_place_for_images(cat):
    assert "-i needs a chat template" in run("--raw", "-i", cat, "-p", "x", ok=False).stderr


def talk(*lines, folder, **kwargs):
    done = ingot("chat", MODEL, "--chat-template", TEMPLATE, "-n", "2", "--temp", "0", "--talk-file", "", input="\n".join(lines) + "\n", **kwargs)
    return done.stdout + done.stderr


def test_chat(cat, tmp_path):
    saved = tmp_path / "talk.json"
    out = talk(f"/image {cat}", "what", "/stats", "/tokens", "again", "/stats", f"/save {saved}", "/regen", "/edit new", "/tokens", folder=tmp_path)
    assert "The next question has 1 image." in out
    n = GOLDEN["prompts"][0]["n_vectors"]
    assert out.count(f"{n} of them for 1 image") == 4, out
    messages = json.loads(saved.read_text())
    assert messages[0]["content"][0]["type"] == "image_url" and messages[0]["content"][1] == {"type": "text", "text": "what"}
    out = talk(f"/load {saved}", "/tokens", "/undo", "/undo", "/tokens", folder=tmp_path)
    assert f"{n} of them for 1 image" in out and "Taken back: what" in out and "has 0 of" in out


def test_chat_keeps_and_drops_waiting_images(cat, tmp_path):
    out = talk("/image /nonexistent.png", f"/image {cat}", f"/image {cat}", "/image", "/image none", folder=tmp_path)
    assert "cannot open" in out and "The next question has 2 images." in out and "/image FILE adds one." in out
