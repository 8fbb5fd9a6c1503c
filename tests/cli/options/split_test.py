"""Models split between devices: flags, and plans for a GPU that the machine does not have. `ref` takes the GPU's
place."""
import json

import pytest

ASK = ["-p", "What is 7 + 5?", "--temp", "0"]
ANSWER = "7 + 5 = 12.\n"


@pytest.mark.parametrize("flags", [["--device", "cpu,cpu", "--pp", "2"], ["--device", "cpu,ref,cpu", "--pp", "3"], ["--device", "cpu,cpu", "--pp", "2", "--layers-split", "1,11"], ["--device", "cpu,cpu,cpu,cpu", "--tp", "2", "--pp", "2"],
                                   ["--device", "ref", "--gpu-layers", "2"], ["--device", "ref", "-ngl", "all"], ["--device", "ref", "-ot", "ffn_=CPU"],
                                   ["--device", "ref", "--override-tensor", r"blk\.[12]\.=CPU,ffn=CUDA0"], ["--device", "cpu,cpu", "--pp", "2", "--trace-steps", "--trace", "/dev/null"]])
def test_the_same_answer(ingot, flags):
    assert ingot("run", *flags, *ASK).stdout == ANSWER


@pytest.mark.parametrize("flags, words", [
    (["--device", "cpu,cpu"], "--device names 2 devices, but --pp is 1"),
    (["--device", "cpu", "--pp", "2"], "--device names 1 devices, but --pp is 2"),
    (["--device", "cpu,cpu", "--pp", "2", "--layers-split", "1,1"], "lists 2 devices with 2 layers in all: expected 2 devices with 12 layers"),
    (["--layers-split", "6"], "--layers-split needs --pp"),
    (["--device", "cpu", "--gpu-layers", "3"], "--gpu-layers 3 needs a GPU"),
    (["--device", "ref", "--gpu-layers", "some"], "--gpu-layers 'some': give a number of layers, all or auto"),
    (["--device", "ref", "--cpu-experts", "1"], "this model has none"),
    (["--device", "ref", "-ot", "ffn_down=CPU"], "puts 1 of 3 matrices of the feed-forward of layer 0 on the CPU"),
    (["--device", "ref", "-ot", "ffn"], "give PATTERN=CPU or PATTERN=CUDA0"),
])
def test_what_cannot_be(ingot, flags, words):
    done = ingot("run", *flags, *ASK, ok=False)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_plan_without_a_gpu(ingot):
    whole = json.loads(ingot("inspect", "--fit", "--gpu-memory", "1GiB", "--json").stdout)
    assert whole["split"] == "layers 0 to 11 on the GPU" and len(whole["devices"]) == 1 and whole["fit"]
    part = json.loads(ingot("inspect", "--fit", "--gpu-memory", "520MiB", "--json").stdout)  # the driver takes most of it
    assert "on the CPU, layers" in part["split"] and [d["name"] for d in part["devices"]] == ["the GPU", "the CPU"]
    assert sum(d["weights_bytes"] for d in part["devices"]) == part["weights_bytes"]
    two = json.loads(ingot("inspect", "--fit", "--gpu-memory", "2GiB,1GiB", "--json").stdout)  # layers in proportion to the memory
    assert two["split"] == "layers 0 to 9 on GPU 0, layers 10 to 11 on GPU 1" and [d["name"] for d in two["devices"]] == ["GPU 0", "GPU 1"]
    assert two["fit"][-1]["sequences"] >= part["fit"][-1]["sequences"]
    assert part["fit"][0]["context"] == part["model_context"]
    text = ingot("inspect", "--fit", "--gpu-memory", "520MiB").stdout
    assert part["split"] in text and "the GPU: " in text
    none = ingot("inspect", "--fit", "--gpu-memory", "512MiB", "--memory", "1MiB", ok=False)
    assert none.returncode == 1 and "use a smaller quantization" in none.stderr
