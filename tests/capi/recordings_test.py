"""Recordings through the C API and the Python package, on the tiny model with ears of tests/data/ears. The oracle is
transformers."""
import json
import os
import pathlib
import sys

import numpy as np
import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
sys.path.insert(0, str(SOURCE / "python"))
sys.path.insert(0, str(SOURCE / "tests/server"))
sys.dont_write_bytecode = True
from ingot import InvalidError, Model  # noqa: E402
from sounds import wav  # noqa: E402

VOXTRAL = SOURCE / "tests/data/ears/voxtral"
GOLDENS = json.loads((VOXTRAL / "goldens.json").read_text())["prompts"]


@pytest.mark.parametrize("prompt", GOLDENS, ids=lambda p: f"{len(p['sounds'])} recordings")
def test_tokens_and_the_next_token_are_those_of_transformers(prompt):
    """The template is the text, because a message cannot write its control tokens."""
    sounds = [wav(n, seed) for n, seed in prompt["sounds"]]
    messages = [{"role": "user", "content": [{"type": "audio"}] * len(sounds)}]
    with Model.load(VOXTRAL, chat_template=prompt["text"] + "{# #}", n_threads=2) as model:
        assert model.reads_recordings and not model.reads_images
        assert model.tokenize_chat(messages, images=sounds) == prompt["tokens"]
        answer = model.chat(messages, images=sounds, temperature=0, max_tokens=1, logprobs=3)
        logits = np.array(prompt["logits"][-1])
        logprobs = logits - np.log(np.exp(logits).sum())
        for (token, logprob), expected in zip(answer.top_logprobs[0], np.sort(logprobs)[::-1]):
            assert abs(logprob - expected) < 0.1 and abs(logprobs[token] - expected) < 0.1


def test_recordings_precede_the_last_question(tmp_path):
    (tmp_path / "noise.wav").write_bytes(wav(3000))
    explicit = [{"role": "user", "content": [{"type": "audio"}, {"type": "text", "text": "what?"}]}]
    with Model.load(VOXTRAL, n_threads=2) as model:
        expected = model.tokenize_chat(explicit, images=[wav(3000)])
        assert expected.count(260) == 6
        assert model.tokenize_chat("what?", images=[tmp_path / "noise.wav"]) == expected
        with pytest.raises(InvalidError, match="images\\[0\\]: the audio is"):
            model.tokenize_chat("what?", images=[wav(3000)[:20]])
