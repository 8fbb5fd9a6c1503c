"""Encoders of sentence-transformers from the Hub whose modules are in folders of any name. ingot fetches the files that
sentence-transformers reads, and computes the same vectors (tools/hub_layout/make_encoders.py). modules.json may be
hostile."""
import importlib.util
import json
import pathlib

import numpy as np
import pytest
from conftest import DATA, SOURCE
from hub_rig import fake_hub, hub, run, seed  # noqa: F401 (fixtures)

GOLDEN = json.loads((DATA / "hub" / "encoders.json").read_text())
spec = importlib.util.spec_from_file_location("make_hub_encoders", SOURCE / "tools/hub_layout/make_encoders.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


@pytest.mark.parametrize("name", GOLDEN["repos"])
def test_fetches_and_computes_as_sentence_transformers(hub, run, tmp_path, name):
    expected = GOLDEN["repos"][name]
    hub.repos = make.repos()
    report = json.loads(run("pull", name, "--json").stdout)
    assert (
        sorted(f["path"] for f in report["files"]) == sorted(set(expected["files"]) - {"README.md"}) == sorted(hub.sent)
    )
    asked = len(hub.requests)
    texts = [a for text in GOLDEN["texts"] for a in ("-p", text)]
    run("embed", name, *texts, "--npy", "-o", tmp_path / "out.npy", "--offline")
    rows, wanted = np.load(tmp_path / "out.npy"), np.asarray(expected["vectors"])
    assert rows.shape == wanted.shape and (rows * wanted).sum(-1).min() > 0.9999
    assert len(hub.requests) == asked and json.loads(run("ls", "--json").stdout)[0]["label"] == "safetensors"


@pytest.mark.parametrize("folder", ["..", "../../blobs", "/etc", "a/b", ".locks", "a\\b"])
def test_modules_lead_nowhere_else(hub, run, seed, folder):
    files = make.repos()["org/inner"].files
    modules = json.loads(files["modules.json"])
    modules[seed.randrange(len(modules))]["path"] = folder
    hub.repos["org/repo"] = fake_hub.Repo(files | {"modules.json": json.dumps(modules).encode()})
    assert "is not the name of a folder of the model" in run("pull", "org/repo", code=1).stderr
    assert list(hub.sent) == ["modules.json"]


def test_the_options_of_texts_are_read(hub, run):
    """0_Transformer/sentence_roberta_config.json has the maximum length of a text."""
    hub.repos = make.repos()
    run("pull", "org/inner")
    error = run("embed", "org/inner", "-p", "fox " * 40, "--offline", code=1).stderr
    assert "the model reads at most 24" in error


def test_a_folder_without_weights(hub, run):
    files = make.repos()["org/inner"].files
    del files["0_Transformer/model.safetensors"]
    hub.repos["org/repo"] = fake_hub.Repo(files)
    assert "no model: expected GGUF files, or config.json with model.safetensors" in run("pull", "org/repo", code=1).stderr
    hub.repos["org/other"] = fake_hub.Repo(files | {"pool/model.safetensors": b"x"})
    error = run("pull", "org/other", code=1).stderr
    assert "the folder of the model, '0_Transformer/', has no config.json with model.safetensors" in error


def test_a_cache_that_lacks_a_folder(hub, run):
    hub.repos = make.repos()
    folder = pathlib.Path(run("pull", "org/shards").stdout.strip())
    (folder / "encoder" / "model-00002-of-00002.safetensors").unlink()
    error = run("embed", "org/shards", "-p", "x", "--offline", code=1).stderr
    assert "'encoder/model-00002-of-00002.safetensors' is not in the cache" in error and "ingot pull" in error
