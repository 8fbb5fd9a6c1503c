"""ingot tokenize and convert, as users run them: empty texts, an explicit BOS, and messages about llama.cpp's reading
of a converted file."""
import json
import shutil

import pytest
from conftest import DATA


@pytest.fixture
def spm():
    return DATA / "tokenizers" / "hf" / "spm_legacy"


def test_an_empty_text_has_no_tokens(ingot, models, spm, tmp_path):
    (tmp_path / "empty").write_text("")
    for args in ([""], ["-f", tmp_path / "empty"], []):
        assert ingot("tokenize", models / "qwen2.gguf", *args, "--ids", "--no-special").stdout == ""
        assert json.loads(ingot("tokenize", models / "qwen2.gguf", *args, "--json", "--no-special").stdout) == {"ids": [], "tokens": []}
    assert ingot("tokenize", models / "qwen2.gguf", "--ids", ok=False, input="").returncode == 0


def test_an_explicit_bos_is_one_more(ingot, tmp_path, spm):
    """The ids of Hugging Face tokenizers."""
    model = tmp_path / "model"
    shutil.copytree(DATA / "hf" / "llama", model)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(spm / file, model / file)
    assert ingot("tokenize", model, "the", "--ids", "--parse-special").stdout == "1,455,493\n"
    assert ingot("tokenize", model, "<s>the", "--ids", "--parse-special").stdout == "1,1,455,493\n"
    assert ingot("tokenize", model, "", "--ids").stdout == "1\n"


def tie(path):
    """Makes the output matrix of the file equal to its embedding."""
    data = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    places = {name: t["data_offsets"] for name, t in json.loads(data[8:begin]).items() if name != "__metadata__"}
    embedding, head = ([begin + at for at in places[name]] for name in ("model.embed_tokens.weight", "lm_head.weight"))
    data[slice(*head)] = data[slice(*embedding)]
    path.write_bytes(data)


@pytest.mark.parametrize("name, changes, expected", [
    ("olmo2", {"tie_word_embeddings": True}, "it needs an output matrix"),
    ("minimax_m2", {"tie_word_embeddings": True}, "it needs an output matrix"),
    ("mistral_window", {}, "it ignores the attention window"),
    ("seed_oss", {}, "cannot load the file"),
    ("qwen2", {}, ""),
    ("olmo2", {}, ""),
    ("mistral", {}, ""),
])
def test_convert_says_what_llama_cpp_does(ingot, tmp_path, name, changes, expected):
    model = shutil.copytree(DATA / "hf" / name, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | changes))
    if changes.get("tie_word_embeddings"):
        tie(model / "model.safetensors")
    said = [line for line in ingot("convert", model, tmp_path / "out.gguf").stderr.splitlines() if "llama.cpp" in line]
    assert len(said) == (1 if expected else 0) and all(expected in line for line in said), said


def test_biases_that_nothing_uses_are_refused(ingot, tmp_path):
    """DeepSeek 3 with attention_bias has two biases per layer that this program's latent attention does not have."""
    import numpy as np
    model = shutil.copytree(DATA / "hf" / "deepseek3", tmp_path / "model")
    data = (model / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    bias = np.ones(20, np.float32).tobytes()
    header["model.layers.1.self_attn.q_a_proj.bias"] = {"dtype": "F32", "shape": [20], "data_offsets": [len(body), len(body) + len(bias)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (model / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body + bias)
    for command in (["logits", model, "--tokens", "1,2", "-o", tmp_path / "out.npy", "--device", "ref"], ["convert", model, tmp_path / "out.gguf"]):
        done = ingot(*command, ok=False)
        assert done.returncode == 1 and "'model.layers.1.self_attn.q_a_proj.bias' is in the file, but ingot does not use it" in done.stderr
