"""ingot embed and ingot template, as users run them."""
import json
import shutil

import numpy as np
import pytest

from conftest import DATA

ENCODERS = DATA / "encoders"


@pytest.fixture(params=["bert", "xlm_roberta", "nomic_bert", "modern_bert", "qwen3_embed"])
def golden(request):
    return request.param, json.loads((ENCODERS / f"{request.param}.json").read_text())


def cosines(a, b):
    a, b = np.asarray(a, float), np.asarray(b, float)
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def test_embeddings_equal_sentence_transformers(ingot, golden, tmp_path):
    name, expected = golden
    (tmp_path / "texts").write_text("\n".join(expected["texts"]) + "\n")
    for model in (ENCODERS / f"{name}.gguf", ENCODERS / name):
        out = tmp_path / "out.npy"
        ingot("embed", model, "-f", tmp_path / "texts", "--npy", "-o", out)
        rows = np.load(out)
        assert rows.dtype == np.float32 and rows.shape == (6, 48)
        assert cosines(rows, expected["embeddings"]["plain"]).min() > 0.9999
        assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-5


def test_ranks_share_a_model(ingot, golden):
    name, expected = golden
    texts = [a for t in expected["texts"] for a in ("-p", t)]
    done = ingot("embed", ENCODERS / f"{name}.gguf", "--tp", 2, "--json", *texts)
    rows = [d["embedding"] for d in json.loads(done.stdout)["data"]]
    assert cosines(rows, expected["embeddings"]["plain"]).min() > 0.9999
    done = ingot("embed", ENCODERS / f"{name}.gguf", "--tp", 64, "-p", "x", ok=False)
    assert done.returncode == 2 and "64 ranks" in done.stderr


def test_rows_are_lines(ingot, golden, tmp_path):
    name, expected = golden
    (tmp_path / "texts").write_text("\n" + "\n\n".join(expected["texts"]))
    ingot("embed", ENCODERS / name, "-f", tmp_path / "texts", "--npy", "-o", tmp_path / "out.npy")
    rows = np.load(tmp_path / "out.npy")
    assert len(rows) == 12
    assert cosines(rows[1::2], expected["embeddings"]["plain"]).min() > 0.9999


def test_prompts_by_name(ingot, golden):
    name, expected = golden
    done = ingot("embed", ENCODERS / name, *(a for t in expected["texts"] for a in ("-p", t)), "--prompt-name", "query", "--json")
    data = json.loads(done.stdout)
    assert [d["index"] for d in data["data"]] == list(range(6)) and data["object"] == "list"
    assert data["usage"]["prompt_tokens"] == data["usage"]["total_tokens"] > 20
    assert cosines([d["embedding"] for d in data["data"]], expected["embeddings"]["query"]).min() > 0.9999
    done = ingot("embed", ENCODERS / name, "-p", "x", "--prompt-name", "nosuch", ok=False)
    assert done.returncode == 2 and "no prompt 'nosuch'; it has query, document" in done.stderr


def test_a_prompt_may_be_left_out_of_the_vector(ingot, tmp_path):
    golden = json.loads((DATA / "variants" / "encoders.json").read_text())
    row = next(row for row in golden["rows"] if row["name"] == "without_prompt_mean")
    model = shutil.copytree(DATA / row["base"], tmp_path / "model")
    for name, value in row["files"].items():
        (model / name).write_text(json.dumps(value))
    for prompt, flags in (("", []), ("query", ["--prompt-name", "query"])):
        done = ingot("embed", model, *(a for text in golden["texts"] for a in ("-p", text)), "--json", "--truncate", *flags)
        got = [d["embedding"] for d in json.loads(done.stdout)["data"]]
        assert cosines(got, row["vectors"][prompt]).min() > 0.9999, prompt


def test_every_way_out_says_the_same(ingot, tmp_path):
    model = ENCODERS / "bert.gguf"
    text = np.array([[float(x) for x in line.split()] for line in ingot("embed", model, "-p", "a", "-p", "the fox").stdout.splitlines()])
    assert text.shape == (2, 48)
    ingot("embed", model, "-p", "a", "-p", "the fox", "-o", tmp_path / "lines")
    assert np.array_equal(np.loadtxt(tmp_path / "lines"), text)
    from_stdin = ingot("embed", model, "--json", input="a\r\nthe fox").stdout
    assert np.abs(np.array([d["embedding"] for d in json.loads(from_stdin)["data"]]) - text).max() < 1e-6
    whole = json.loads(ingot("embed", model, "--json", "--whole", input="a\nthe fox").stdout)["data"]
    assert len(whole) == 1


def test_pooling_and_length(ingot):
    model = ENCODERS / "bert.gguf"
    def run(*flags):
        return np.array([d["embedding"] for d in json.loads(ingot("embed", model, "-p", "the fox ran", "--json", "--device", "ref", *flags).stdout)["data"]])
    tokens = run("--pooling", "none", "--no-normalize")
    assert len(tokens) > 4
    for name, row in (("cls", tokens[0]), ("last", tokens[-1]), ("mean", tokens.mean(0))):
        assert np.abs(run("--pooling", name, "--no-normalize")[0] - row).max() < 1e-5, name
    assert np.abs(run()[0] - tokens[0] / np.linalg.norm(tokens[0])).max() < 1e-6


def test_what_is_refused(ingot, models, tmp_path):
    model = ENCODERS / "bert.gguf"
    def refused(code, *args):
        done = ingot("embed", *args, ok=False)
        assert done.returncode == code and done.stdout == "", done.stderr
        return done.stderr
    assert "name no pooling for embeddings" in refused(1, models / "llama.gguf", "-p", "x")
    assert "pooling 'max' is not known" in refused(2, model, "-p", "x", "--pooling", "max")
    assert "--npy needs a file" in refused(2, model, "-p", "x", "--npy")
    assert "excludes" in refused(2, model, "-p", "x", "--npy", "--json", "-o", tmp_path / "x")
    (tmp_path / "lines").write_text("")
    assert "the prompt is empty" in refused(2, model, "-f", tmp_path / "lines")
    (tmp_path / "lines").write_text("\n\r\n\n")
    assert len(ingot("embed", model, "-f", tmp_path / "lines").stdout.splitlines()) == 3
    long = "fox " * 100
    assert "but the model reads at most 70: shorten it" in refused(1, model, "-p", long)
    assert ingot("embed", model, "-p", long, "--truncate").stdout.count("\n") == 1
    assert "is a directory" in refused(1, tmp_path, "-p", "x")


def test_inspect_knows_encoders(ingot):
    for model in (ENCODERS / "modern_bert.gguf", ENCODERS / "modern_bert"):
        facts = json.loads(ingot("inspect", model, "--json").stdout)
        assert facts["model"]["architecture"] == "modern-bert" and facts["model"]["layers"] == 4 and facts["model"]["dim"] == 48
        assert facts["pooling"] == "cls" and facts["tokenizer"]["model"] == "gpt2"
    done = ingot("run", ENCODERS / "bert.gguf", "-p", "x", ok=False)
    assert done.returncode == 1 and "ingot embed" in done.stderr


# ---- template

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi {{ 7*7 }}"}]


def test_template_of_a_file(ingot, tmp_path):
    (tmp_path / "m.json").write_text(json.dumps(MESSAGES))
    (tmp_path / "t.jinja").write_text("{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                                      "{% if add_generation_prompt %}<go>{% endif %}{{ think }}")
    def run(*flags):
        return ingot("template", "--template-file", tmp_path / "t.jinja", "--messages", tmp_path / "m.json", *flags).stdout
    assert run("--set", "think=false", "--bos", "<s>") == "<s><system>Be brief.<user>Hi {{ 7*7 }}<go>False"
    assert run("--no-generation-prompt", "--set", "think=a b") == "<system>Be brief.<user>Hi {{ 7*7 }}a b"


def test_template_of_a_model(ingot, tmp_path):
    done = ingot("template", DATA / "hf" / "llama", "--messages", "-", input=json.dumps(MESSAGES))
    assert done.stdout == "<|bos|>system: Be brief.<|eos|><|bos|>user: Hi {{ 7*7 }}<|eos|>"


def test_template_tools(ingot, tmp_path):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    (tmp_path / "t.jinja").write_text("{% for t in tools %}{{ t.function.name }}{% endfor %}")
    done = ingot("template", "--template-file", tmp_path / "t.jinja", "--messages", "-", "--tools", tmp_path / "tools.json", input=json.dumps(MESSAGES))
    assert done.stdout == "f"


def test_template_errors(ingot, tmp_path):
    (tmp_path / "bad.jinja").write_text("{% if x %}\n{{ y")
    (tmp_path / "raises.jinja").write_text("{{ raise_exception('no tools here') }}")
    def refused(code, *args, input=json.dumps(MESSAGES)):
        done = ingot("template", *args, input=input, ok=False)
        assert done.returncode == code and done.stdout == "", done.stderr
        return done.stderr
    assert "line 2" in refused(1, "--template-file", tmp_path / "bad.jinja", "--messages", "-")
    assert "no tools here" in refused(1, "--template-file", tmp_path / "raises.jinja", "--messages", "-")
    assert "no template is given" in refused(2, "--messages", "-")
    assert "KEY=VALUE" in refused(2, "--template-file", tmp_path / "raises.jinja", "--messages", "-", "--set", "x")
    assert "is not JSON" in refused(1, "--template-file", tmp_path / "raises.jinja", "--messages", "-", input="[{")
    assert "messages" in refused(1, "--template-file", tmp_path / "raises.jinja", "--messages", "-", input="{}")
    assert "no chat template" in refused(1, ENCODERS / "bert.gguf", "--messages", "-")
