"""Images through the C API and the Python package, on the tiny SmolVLM of tests/data/vision. The oracle is
transformers."""
import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
sys.path.insert(0, str(SOURCE / "python"))
sys.path.insert(0, str(SOURCE / "tests/server"))
sys.dont_write_bytecode = True
from drawn import pixels as drawn_pixels, png  # noqa: E402
from ingot import InvalidError, Model  # noqa: E402

SMOLVLM = SOURCE / "tests/data/vision/smolvlm"
GOLDEN = json.loads((SMOLVLM / "goldens.json").read_text())
TEMPLATE = ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
            "{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}")
CAT = png(40, 30)


@pytest.fixture(scope="module")
def model():
    with Model.load(SMOLVLM, chat_template=TEMPLATE, n_threads=2) as made:
        yield made


def parts_of(prompt):
    texts = prompt["text"].split("<image>")
    content = [{"type": "text", "text": texts[0]}] if texts[0] else []
    for text in texts[1:]:
        content += [{"type": "image"}] + ([{"type": "text", "text": text}] if text else [])
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("prompt", GOLDEN["prompts"], ids=lambda p: f"{len(p['sizes'])} images")
def test_tokens_and_the_next_token_are_those_of_transformers(model, prompt):
    images = [png(*size, i) for i, size in enumerate(prompt["sizes"])]
    assert model.tokenize_chat(parts_of(prompt), images=images) == prompt["tokens"]
    answer = model.chat(parts_of(prompt), images=images, temperature=0, max_tokens=1, logprobs=3)
    logits = np.array(prompt["logits"][-1])
    logprobs = logits - np.log(np.exp(logits).sum())
    for (token, logprob), expected in zip(answer.top_logprobs[0], np.sort(logprobs)[::-1]):
        assert abs(logprob - expected) < 0.1 and abs(logprobs[token] - expected) < 0.1


def test_images_precede_the_last_question(model, tmp_path):
    (tmp_path / "cat.png").write_bytes(CAT)
    explicit = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "the cat"}]}]
    expected = model.tokenize_chat(explicit, images=[CAT])
    for given in (tmp_path / "cat.png", str(tmp_path / "cat.png"), CAT):
        assert model.tokenize_chat("the cat", images=[given]) == expected
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "the cat"}]
    assert model.tokenize_chat(talk, images=[CAT]) == model.tokenize(" ab".strip()) + expected
    first, again = (model.chat("the cat", images=[CAT], temperature=0, max_tokens=4) for _ in range(2))
    assert first.text == again.text and again.cached_tokens > 0 and first.prompt_tokens == len(expected)
    assert model.chat("the cat", images=[png(40, 30, 1)], temperature=0, max_tokens=4).cached_tokens == 0


def test_arrays_are_pictures(model):
    pixels = np.frombuffer(drawn_pixels(40, 30), np.uint8).reshape(30, 40, 3)
    alpha = np.dstack([pixels, np.full((30, 40), 255, np.uint8)])
    grey = np.repeat(pixels[:, :, :1], 3, axis=2)

    def logprobs(image):  # some tokens come from the cache, whose numbers are rounded
        answer = model.chat("the cat", images=[image], temperature=0, max_tokens=1, logprobs=20)
        return pytest.approx([logprob for _, logprob in answer.top_logprobs[0]], abs=2e-3)

    def same(a, b):
        return logprobs(a).expected == logprobs(b)

    assert all(same(array, CAT) for array in (pixels, alpha, np.asfortranarray(pixels), np.repeat(pixels, 2, 1)[:, ::2]))
    assert same(grey, grey[:, :, 0]) and same(grey, grey[:, :, :1]) and not same(grey, CAT)


def test_streams_and_asyncio(model):
    whole = model.chat("the cat", images=[CAT], temperature=0, max_tokens=4)
    stream = model.chat("the cat", images=[CAT], temperature=0, max_tokens=4, stream=True)
    assert stream.answer.text == whole.text

    async def both():
        return await asyncio.gather(*(model.achat("the cat", images=[CAT], temperature=0, max_tokens=4) for _ in range(2)))

    assert [answer.text for answer in asyncio.run(both())] == [whole.text] * 2
    assert [a.text for a in model.chat("the cat", images=[CAT], temperature=0, max_tokens=4, n=2)] == [whole.text] * 2


@pytest.mark.parametrize("images, words", [
    ([b""], "images\\[0\\]: the image is empty"), ([CAT, CAT[:50]], "images\\[1\\]: the image is a truncated PNG file"),
    ([b"%PDF-1.7"], "a PDF file"), (["/nonexistent.png"], "cannot be read"), ([5.5], "cannot be read"), (CAT, "images is one image"),
    (np.zeros((4, 4, 3), np.uint8), "images is one image"), ([np.zeros((4, 4, 3))], "an array of float64 \\[4, 4, 3\\]: expected uint8"),
    ([np.zeros((4, 4, 2), np.uint8)], "expected uint8"), ([np.zeros((0, 4, 3), np.uint8)], "an empty array"),
])
def test_bad_images(model, images, words):
    with pytest.raises(InvalidError, match=words):
        model.chat("x", images=images, max_tokens=1)


def test_what_does_not_fit(model):
    with pytest.raises(InvalidError, match="placeholders"):
        model.chat([{"role": "user", "content": [{"type": "image"}]}], images=[CAT, CAT], max_tokens=1)
    with pytest.raises(InvalidError, match="context"):
        model.chat("x" * 500, images=[CAT], max_tokens=1)
    with pytest.raises(InvalidError, match="this model reads text and images only"):
        model.chat([{"role": "user", "content": [{"type": "audio"}]}])


def test_models_of_text():
    with Model.load(SOURCE / "models/demo.gguf", n_ctx=256) as demo:
        assert not demo.reads_images
        with pytest.raises(InvalidError, match="the model reads text only"):
            demo.chat("x", images=[CAT], max_tokens=1)
        with pytest.raises(InvalidError, match="images are not supported"):
            demo.chat([{"role": "user", "content": [{"type": "image"}]}])


def test_the_tower_is_found_named_or_left_out(model, tmp_path):
    assert model.reads_images
    with Model.load(SMOLVLM, no_images=True) as blind:
        assert not blind.reads_images
    whole = tmp_path / "m.gguf"
    subprocess.run([os.environ["INGOT"], "convert", str(SMOLVLM), str(whole)], check=True, capture_output=True)
    with Model.load(whole) as alone, Model.load(whole, mmproj=SMOLVLM / "mmproj.gguf") as named:
        assert not alone.reads_images and named.reads_images
    shutil.copy(SMOLVLM / "mmproj.gguf", tmp_path / "mmproj-F16.gguf")
    with Model.load(whole, chat_template=TEMPLATE) as found:
        assert found.tokenize_chat("x", images=[CAT]) == model.tokenize_chat("x", images=[CAT])
    with pytest.raises(InvalidError, match="exclude each other"):
        Model.load(whole, mmproj=SMOLVLM / "mmproj.gguf", no_images=True)
