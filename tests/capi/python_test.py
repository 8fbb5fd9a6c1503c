"""The Python package's options and refusals, with this build's library: seeds, several answers, biases, likeliest
tokens, options of loading, forks. tests/python tests the wheel."""

import json
import math
import os
import pathlib
import random
import subprocess
import sys
import textwrap

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
SEED = int(os.environ.get("INGOT_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
sys.path.insert(0, str(SOURCE / "python"))
sys.dont_write_bytecode = True
from ingot import InvalidError, Model, Options  # noqa: E402

DEMO = SOURCE / "models" / "demo.gguf"
ASK = "Tell me a story about a fox."


@pytest.fixture(scope="module")
def model():
    with Model.load(DEMO, n_ctx=256, n_threads=2) as made:
        yield made


def test_a_seed_is_random_and_tells_how_to_repeat(model):
    answers = [model.chat(ASK, max_tokens=20, temperature=1.5) for _ in range(4)]
    assert len({a.seed for a in answers}) == 4 and len({a.text for a in answers}) > 1
    for answer in answers:
        assert 0 <= answer.seed < 1 << 53
        assert model.chat(ASK, max_tokens=20, temperature=1.5, seed=answer.seed).text == answer.text
    assert model.chat(ASK, max_tokens=1, seed=2**64 - 1).seed == 2**64 - 1


@pytest.mark.parametrize("ask", ["chat", "generate"])
def test_several_answers_have_neighbouring_seeds(model, ask):
    write = getattr(model, ask)
    several = write(ASK, n=3, seed=7, max_tokens=12, temperature=1.5)
    assert [a.seed for a in several] == [7, 8, 9]
    assert [a.text for a in several] == [write(ASK, seed=7 + i, max_tokens=12, temperature=1.5).text for i in range(3)]
    assert len(write(ASK, n=1, max_tokens=2)) == 1
    for n, words in [(0, "n is 0"), (129, "n is 129"), ("2", "n is '2'")]:
        with pytest.raises(InvalidError, match=words):
            write(ASK, n=n)
    with pytest.raises(InvalidError, match="a stream is of one answer"):
        write(ASK, n=2, stream=True)


def test_several_prompts_with_several_answers(model):
    got = model.generate(["One day", "A fox"], n=2, seed=3, max_tokens=5, temperature=1.5)
    assert [a.seed for a in got] == [3, 4, 3, 4]
    assert got[3].text == model.generate("A fox", seed=4, max_tokens=5, temperature=1.5).text


def test_a_number_of_likeliest_tokens(model):
    """They are those of logits()."""
    prompt = model.tokenize("Once upon a")
    for n in (1, 5, 20):
        answer = model.generate(prompt, max_tokens=4, temperature=0, logprobs=n)
        assert len(answer.logprobs) == len(answer.top_logprobs) == len(answer.tokens)
        rows = model.logits(prompt + answer.tokens, all=True).astype("float64")
        for i, (token, top) in enumerate(zip(answer.tokens, answer.top_logprobs)):
            row = rows[len(prompt) - 1 + i]
            row = row - row.max() - math.log(sum(math.exp(v - row.max()) for v in row))
            assert len(top) == n and len({t for t, _ in top}) == n
            assert [p for _, p in top] == sorted((p for _, p in top), reverse=True)
            assert all(abs(p - row[t]) < 0.05 for t, p in top)
            assert top[0][0] == token
    plain = model.generate(prompt, max_tokens=2, logprobs=True)
    assert plain.top_logprobs is None and len(plain.logprobs) == len(plain.tokens)
    assert model.generate(prompt, max_tokens=2).logprobs is None
    for bad in (-1, 21, "5", 1.5):
        with pytest.raises(InvalidError, match="logprobs is"):
            model.generate(prompt, logprobs=bad)


def test_likeliest_tokens_with_asyncio(model):
    import asyncio

    async def ask():
        return await model.agenerate("Once upon a", max_tokens=6, temperature=0, logprobs=3, n=2)

    first, second = asyncio.run(ask())
    expected = model.generate("Once upon a", max_tokens=6, temperature=0, logprobs=3)
    for got in (first, second):
        assert got.tokens == expected.tokens
        assert [[t for t, _ in top] for top in got.top_logprobs] == [
            [t for t, _ in top] for top in expected.top_logprobs
        ]


def test_biases(model):
    draw = random.Random(SEED)
    print("seed", SEED)
    plain = model.generate("Once upon a", max_tokens=1, temperature=0).tokens[0]
    for _ in range(10):
        wanted = draw.randrange(300, model.n_vocab)
        assert (
            model.generate("Once upon a", max_tokens=3, logit_bias={wanted: 100}, ignore_eos=True).tokens
            == [wanted] * 3
        )
    assert model.generate("Once upon a", max_tokens=1, temperature=0, logit_bias={plain: -math.inf}).tokens != [plain]
    assert model.generate("Once upon a", max_tokens=1, temperature=0, logit_bias={str(plain): 0.0}).tokens == [plain]
    for bad, words in [
        ({model.n_vocab: 1}, "names token"),
        ({1: math.nan}, "logit_bias of token 1"),
        ({i: 0 for i in range(1025)}, "1025 entries"),
        ([1], "give a dict"),
        ({"a": 1}, "give a dict"),
    ]:
        with pytest.raises(InvalidError, match=words):
            model.generate("Once", logit_bias=bad)


def refusals(ask, values):
    for value in values:
        with pytest.raises(InvalidError) as refused:
            ask(value)
        yield str(refused.value)


BAD = {
    "max_tokens": [0, -2, "x", 1.5],
    "temperature": [-1, math.nan, "x"],
    "top_k": [-1, 1.5],
    "top_p": [0, 2],
    "min_p": [2],
    "typical_p": [0],
    "repetition_penalty": [0],
    "presence_penalty": [1e9],
    "frequency_penalty": [1e9],
    "penalty_window": [-2],
    "seed": [-1, 1 << 64, "x", 1.5],
    "logprobs": [21],
    "logit_bias": [3],
    "stop": [3, [3], ""],
    "stop_tokens": [3, ["x"]],
    "priority": [1000],
    "timeout_s": [-1],
    "schema": ["{", {"type": "x"}, 3],
    "regex": ["("],
    "grammar": ["x"],
    "beams": [0, 65, "x"],
    "early_stopping": ["always", 2],
}


def test_every_option_is_refused_by_its_name_in_python(model):
    """No name of the C API is in a message: not json_schema, n_logprobs or NULL."""
    checked_elsewhere = {"ignore_eos", "cache_salt", "length_penalty"}  # any truth value, any text; of beams
    assert set(BAD) | checked_elsewhere == set(Options.__annotations__)
    for name, values in BAD.items():
        for words in refusals(lambda value: model.chat(ASK, **{name: value}), values):
            assert name.split("_")[0] in words, (name, words)
            assert not any(
                c_name in words for c_name in ("json_schema", "n_logprobs", "NULL", "bias_tokens", "n_stop")
            ), words
    [words] = refusals(lambda value: model.chat(ASK, **value), [{"schema": {}, "regex": "a"}])
    assert words == "schema and regex exclude each other: give only one of them"
    [words] = refusals(lambda value: model.chat(ASK, colour=value), [1])
    assert words.startswith("there is no option 'colour': use one of max_tokens,") and "json_schema" not in words


def test_beams_are_those_of_transformers():
    """tests/data/beams.json, without the grammars: those of the tiny llama that have one text."""
    data = SOURCE / "tests" / "data"
    prompt = json.loads((data / "models" / "llama.json").read_text())["tokens"]
    goldens = [g for g in json.loads((data / "beams.json").read_text()) if g["model"] == "llama" and not g["letters"]]
    assert len(goldens) == 6
    with Model.load(data / "models" / "llama.gguf", n_ctx=128, n_threads=2) as llama:
        for golden in goldens:
            answer = llama.generate(prompt, beams=golden["n_beams"], length_penalty=golden["length_penalty"], max_tokens=20,
                                    early_stopping=golden["early_stopping"], stop_tokens=golden["ends"], penalty_window=-1,
                                    repetition_penalty=golden["repetition_penalty"])
            assert answer.tokens == [t for t in golden["texts"][0] if t not in golden["ends"]], golden


def test_beams_find_one_answer(model):
    with pytest.raises(InvalidError, match="leave out n"):
        model.generate(ASK, beams=2, n=2)
    with pytest.raises(InvalidError, match="top_logprobs must be 0"):
        model.generate(ASK, beams=2, logprobs=3)
    with pytest.raises(InvalidError, match="a step has at most 8 sequences"):
        model.generate(ASK, beams=9)
    greedy, beams = (model.generate(ASK, beams=n, temperature=0, max_tokens=12, logprobs=True, length_penalty=0.0) for n in (1, 4))
    assert sum(beams.logprobs) >= sum(greedy.logprobs) - 1e-4
    stream = model.generate(ASK, beams=2, max_tokens=5, stream=True)
    assert "".join(stream) == model.generate(ASK, beams=2, max_tokens=5).text


def test_options_of_loading(tmp_path):
    seen = []
    template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    dense = SOURCE / "tests" / "data" / "models" / "llama_f16.gguf"
    with Model.load(dense, n_ctx=64, n_threads=1, quantize="Q8_0") as small, Model.load(dense, n_ctx=64) as large:
        ids = small.tokenize("a fox")
        change = abs(small.logits(ids) - large.logits(ids)).max()
        assert 0 < change < 1, "rounded weights give other logits, by a little"
    Model.load(DEMO, n_ctx=64, n_threads=2, progress=lambda done, total: seen.append((done, total))).close()
    with Model.load(DEMO, n_ctx=64, n_threads=2, chat_template=template, tp=2) as model:
        assert model.detokenize(model.tokenize_chat("fox")).endswith("<fox>")
        assert model.chat("fox", max_tokens=3).output_tokens == 3
    assert seen == sorted(seen) and 0 < seen[0][0] < seen[-1][0] <= seen[-1][1]
    for options, words in [
        ({"tp": 0}, "tp is 0"),
        ({"pp": 65}, "pp is 65"),
        ({"gpu_layers": 3}, "gpu_layers needs a GPU"),
        ({"gpu_memory": "lots"}, "gpu_memory is 'lots'"),
        ({"gpu_memory": 0.5}, "gpu_memory needs a GPU"),
        ({"gpu_memory": -1}, "gpu_memory is -1"),
        ({"quantize": "Q99"}, "Q99"),
        ({"chat_template": "chatty"}, "chatty"),
        ({"chat_template": "{% if %}"}, "template"),
        ({"device": "cuda:0,cuda:0", "pp": 2}, "GPU twice"),
        ({"device": "cpu,cpu,cpu", "pp": 2}, "3 devices"),
        ({"speculate": "draft"}, "set draft to its path"),
    ]:
        with pytest.raises(InvalidError, match=words):
            Model.load(DEMO, n_ctx=64, **options)


def test_progress_may_stop_a_load():
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Model.load(DEMO, n_ctx=64, n_threads=2, progress=stop)


@pytest.mark.parametrize(
    "name, value",
    [
        ("tp", 2),
        ("pp", 2),
        ("gpu_layers", 1),
        ("gpu_memory", 0.5),
        ("quantize", "Q8_0"),
        ("chat_template", "chatml"),
        ("progress", print),
    ],
)
def test_models_of_vectors_say_which_option_is_not_theirs(name, value):
    with pytest.raises(InvalidError, match=f"{name} is for models that write text"):
        Model.load(SOURCE / "tests" / "data" / "encoders" / "bert", **{name: value})


FORKED = """
import os, sys
import ingot
model = ingot.Model.load(sys.argv[1], n_ctx=128, n_threads=2)
embedder = ingot.Model.load(sys.argv[2], n_threads=2)
stream = model.chat("Hello", max_tokens=50, stream=True, ignore_eos=True)
next(iter(stream))
child = os.fork()
if child == 0:
    calls = [lambda: model.chat("Hello", max_tokens=3), lambda: model.generate("a", stream=True),
             lambda: next(iter(stream)), lambda: model.tokenize("a"), lambda: model.logits("a"), lambda: model.n_ctx, lambda: embedder.embed("a")]
    refused = 0
    for call in calls:
        try:
            call()
        except ingot.InvalidError as error:
            refused += "fork" in str(error)
    stream.close()
    model.close()
    own = ingot.Model.load(sys.argv[1], n_ctx=128, n_threads=2)  # a model of the child itself works
    assert own.chat("Hello", max_tokens=3).output_tokens == 3
    sys.exit(0 if refused == len(calls) else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert stream.answer.output_tokens == 50
print(model.chat("Hello", max_tokens=3).output_tokens)
"""


def test_a_fork_is_refused_and_ends(tmp_path):
    """The child gets an error from every call, and its end waits for no thread that it does not have."""
    encoder = SOURCE / "tests" / "data" / "encoders" / "bert"
    done = subprocess.run(
        [sys.executable, "-B", "-c", textwrap.dedent(FORKED), DEMO, encoder],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(SOURCE / "python")},
    )
    assert done.returncode == 0 and done.stdout.split() == ["3"], done.stdout + done.stderr
