"""A Hugging Face directory in place of a model file, in every command. Compared with the GGUF file of the same weights
and with transformers."""
import json
import os
import shutil

import numpy as np
import pytest


@pytest.fixture
def hf(models):
    return models.parent / "hf"


def golden(models, name):
    return json.loads((models / f"{name}.json").read_text()), np.load(models / f"{name}.npy")


@pytest.mark.parametrize("name", ["llama_bf16", "llama_tied_llama3", "mistral", "mistral_window", "qwen2", "qwen3_tied_yarn"])
def test_logits_equal_transformers(ingot, models, hf, tmp_path, name):
    facts, expected = golden(models, name)
    tokens = ",".join(map(str, facts["tokens"]))
    out = tmp_path / "out.npy"
    ingot("logits", hf / name, "--tokens", tokens, "--all", "-o", out, "--device", "ref", "--cache-type", "f32")
    assert np.abs(np.load(out) - expected).max() < 1e-4
    ingot("logits", hf / name, "--tokens", tokens, "--all", "-o", out)
    assert np.abs(np.load(out) - expected).max() < (0.2 if name == "llama_bf16" else 0.08)  # bf16 activations where the CPU has them


def test_greedy_text_equals_that_of_the_gguf(ingot, models, hf):
    for command in ("run", "chat"):
        prompt = ["-p", "the cat", "--raw"] if command == "run" else []
        answers = [ingot(command, path, *prompt, "--temp", "0", "-n", "12", "--device", "ref", input="the cat\n").stdout
                   for path in (hf / "qwen2", models / "qwen2.gguf")]
        assert answers[0].strip()
        if command == "run":  # the GGUF file has no chat template
            assert answers[0] == answers[1]


def test_perplexity_equals_that_of_the_gguf(ingot, models, hf, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat and the hat are in the house on it. " * 40)
    results = [json.loads(ingot("perplexity", path, "-f", text, "-c", "64", "--device", "ref", "--json").stdout)
               for path in (hf / "llama", models / "llama.gguf")]
    assert results[0]["n_tokens"] == results[1]["n_tokens"]
    assert results[0]["perplexity"] == pytest.approx(results[1]["perplexity"], rel=1e-3)


def test_inspect(ingot, models, hf):
    facts = json.loads(ingot("inspect", hf / "llama_bf16", "--json", "--tensors").stdout)
    assert facts["container"] == "Hugging Face directory" and facts["files"] == 3
    assert facts["name"] == "llama_bf16"
    assert facts["model"]["layers"] == 3 and facts["model"]["rope_theta"] == 5000
    assert facts["tokenizer"]["tokens"] == 259 and facts["tokenizer"]["chat_template"]
    assert facts["quant_mix"]["BF16"]["tensors"] == 23 and facts["quant_mix"]["F32"]["tensors"] == 7
    assert {t["name"] for t in facts["tensors"]} >= {"lm_head.weight", "model.layers.2.mlp.up_proj.weight"}
    assert facts["metadata"]["model_type"] == "llama"
    gguf = json.loads(ingot("inspect", models / "llama_bf16.gguf", "--json").stdout)
    assert facts["parameters"] == gguf["parameters"] and facts["model"] == gguf["model"]
    assert "for m in messages" in ingot("inspect", hf / "llama_bf16", "--template").stdout


def test_tokenize(ingot, models, hf):
    text = "the cat <|eos|> and 12 hats\n\n"
    for flags in ([], ["--parse-special"]):
        ids = [ingot("tokenize", path, text, "--ids", *flags).stdout for path in (hf / "llama", models / "llama.gguf")]
        assert ids[0] == ids[1] and ids[0].count(",") > 5


def test_quantized_directories(ingot, models, tmp_path):
    folder = models.parent / "quantized" / "models"
    facts = json.loads(ingot("inspect", folder / "mlx_4bit", "--json", "--tensors").stdout)
    assert facts["container"] == "MLX directory" and facts["parameters"] == 82880
    assert facts["quant_mix"] == {"F32": {"tensors": 5, "bytes": 1280}, "MLX 4-bit g64": {"tensors": 16, "bytes": 46440}}
    embedding = next(t for t in facts["tensors"] if t["name"] == "model.embed_tokens.weight")
    assert embedding == {"name": "model.embed_tokens.weight", "type": "MLX 4-bit g64", "shape": [261, 64], "bytes": 261 * 36}
    assert "GPTQ 4-bit g32" in json.loads(ingot("inspect", folder / "gptq", "--json").stdout)["quant_mix"]
    out, tokens = tmp_path / "out.npy", json.loads((folder / "mlx_4bit" / "tokens.json").read_text())
    expected = np.load(folder / "mlx_4bit" / "expected.npy")
    for device, bound in (("ref", 1e-4), ("cpu", 0.5)):
        ingot("logits", folder / "mlx_4bit", "--tokens", ",".join(map(str, tokens)), "--all", "-o", out, "--device", device, "--cache-type", "f32")
        assert np.abs(np.load(out) - expected).max() < bound
    assert ingot("run", folder / "mlx_4bit", "-p", "the cat", "--raw", "-n", "4").returncode == 0


def test_what_is_not_a_model_directory(ingot, hf, tmp_path):
    done = ingot("run", tmp_path, "-p", "x", ok=False)
    assert done.returncode == 1 and "is a directory without a config.json: give" in done.stderr and done.stdout == ""
    shutil.copytree(hf / "llama", tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "hqq", "bits": 4}
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    done = ingot("run", tmp_path / "m", "-p", "x", ok=False)
    assert done.returncode == 1 and "'hqq'" in done.stderr and "unquantized checkpoint" in done.stderr and done.stdout == ""
    weights = tmp_path / "m" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    (tmp_path / "m" / "config.json").write_bytes((hf / "llama" / "config.json").read_bytes())
    done = ingot("run", tmp_path / "m", "-p", "x", ok=False)
    assert done.returncode == 1 and "model.safetensors" in done.stderr and "truncated" in done.stderr


def test_sampling_follows_generation_config_and_flags_beat_it(ingot, hf, tmp_path):
    model = tmp_path / "m"
    shutil.copytree(hf / "qwen2", model)
    def run(*flags):
        return json.loads(ingot("run", model, "-p", "the cat", "--raw", "-n", "12", "--seed", "7", "--json", "--device", "ref", *flags).stdout)["token_ids"]
    drawn, greedy = run(), run("--temp", "0")
    assert drawn != greedy  # a random model's tokens have similar probabilities
    (model / "generation_config.json").write_text('{"do_sample": false}')
    assert run() == greedy
    assert run("--temp", "0.8") == drawn
    (model / "generation_config.json").write_text('{"temperature": 1.5, "top_k": 1}')
    assert run() == greedy
    assert json.loads(ingot("inspect", model, "--json").stdout)["sampling"] == {"temperature": 1.5, "top_k": 1}
    (model / "generation_config.json").write_text('{"top_p": 3}')
    assert "'top_p'" in ingot("run", model, "-p", "x", ok=False).stderr


def test_code_and_pickles_beside_the_weights_are_not_opened(ingot, hf, tmp_path):
    """Each of these files is a pipe without a writer, so opening one would block for ever."""
    plain = ingot("run", hf / "qwen2", "-p", "the cat", "--raw", "--temp", "0", "-n", "4").stdout
    model = shutil.copytree(hf / "qwen2", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnModel"}
    (model / "config.json").write_text(json.dumps(config))
    for name in ("pytorch_model.bin", "model.bin", "training_args.bin", "configuration_own.py", "modeling_own.py", "tokenization_own.py"):
        os.mkfifo(model / name)
    assert ingot("run", model, "-p", "the cat", "--raw", "--temp", "0", "-n", "4", timeout=120).stdout == plain
    ingot("inspect", model, "--tensors", timeout=120)
    ingot("convert", model, tmp_path / "out.gguf", timeout=120)
