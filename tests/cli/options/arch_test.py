"""Architectures from files (--arch): a model of a type that the program does not know runs with its row, and a row that
names anything unknown is refused by one line."""
import json
import shutil

import numpy as np
import pytest

# The row of Qwen 2 with the keys of its config.json that are not those of all families.
ROW = {"gguf_name": "ours", "hf_name": "ours", "hf_window_opt_in": True,
       "hf_defaults": json.dumps({"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28,
                                  "layer_types": None})}


@pytest.fixture
def ours(models, tmp_path):
    directory = shutil.copytree(models.parent / "hf" / "qwen2", tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    config["model_type"] = "ours"
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def row_file(tmp_path, **changes):
    path = tmp_path / "row.json"
    path.write_text(json.dumps(ROW | changes))
    return path


def test_a_type_of_a_file_runs(ingot, models, ours, tmp_path):
    facts = json.loads((models / "qwen2.json").read_text())
    tokens = ",".join(map(str, facts["tokens"]))
    out = tmp_path / "out.npy"
    ingot("logits", ours, "--arch", row_file(tmp_path), "--tokens", tokens, "--all", "-o", out, "--device", "ref",
          "--cache-type", "f32")
    assert np.abs(np.load(out) - np.load(models / "qwen2.npy")).max() < 1e-4


def test_without_the_file_the_type_is_not_known(ingot, ours):
    result = ingot("run", ours, "-p", "x", ok=False)
    assert result.returncode != 0 and "architecture 'ours' is not supported" in result.stderr


@pytest.mark.parametrize("changes, expected", [
    ({"layers": "attention/quantum"}, "'quantum' is no kind of layer part"),
    ({"code": "x"}, "is no column of an architecture"),
    ({"hf_name": None}, "hf_name"),
])
def test_a_bad_file_is_one_line(ingot, ours, tmp_path, changes, expected):
    result = ingot("run", ours, "--arch", row_file(tmp_path, **changes), "-p", "x", ok=False)
    assert result.returncode != 0 and expected in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_missing_file_is_named(ingot, ours, tmp_path):
    result = ingot("run", ours, "--arch", tmp_path / "none.json", "-p", "x", ok=False)
    assert result.returncode != 0 and "none.json" in result.stderr
