"""ingot inspect for programs and for people: metadata with the file's types, and the progress of a long measurement."""
import json
import shutil
import struct

from conftest import DATA, SOURCE
from terminal_rig import Terminal

U32, I32, F32, BOOL, STRING, ARRAY, F64 = 4, 5, 6, 7, 8, 9, 12


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(entries):
    """A GGUF file without tensors, written according to the format's specification."""
    pack = {U32: lambda v: struct.pack("<I", v), I32: lambda v: struct.pack("<i", v), F32: lambda v: struct.pack("<f", v),
            F64: lambda v: struct.pack("<d", v), BOOL: lambda v: struct.pack("<?", v), STRING: text}
    pack[ARRAY] = lambda v: struct.pack("<IQ", v[0], len(v[1])) + b"".join(pack[v[0]](one) for one in v[1])
    body = b"".join(text(key) + struct.pack("<I", kind) + pack[kind](value) for key, kind, value in entries)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + body


def test_metadata_has_the_types_of_the_file(ingot, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf([("general.architecture", STRING, "llama"), ("a.text", STRING, 'a "b"\n' + "x" * 2000), ("a.count", U32, 4000000000), ("a.below", I32, -1),
                           ("a.eps", F32, 1e-05), ("a.base", F32, 100000.0), ("a.nan", F32, float("nan")), ("a.wide", F64, 0.1), ("a.flag", BOOL, True),
                           ("a.few", ARRAY, (I32, [1, 2, 3])), ("a.names", ARRAY, (STRING, [f"n{i}" for i in range(100)]))]))
    metadata = json.loads(ingot("inspect", path, "--json").stdout)["metadata"]
    assert metadata == {"general.architecture": "llama", "a.text": 'a "b"\n' + "x" * 2000, "a.count": 4000000000, "a.below": -1, "a.eps": 1e-05, "a.base": 100000.0, "a.nan": None,
                        "a.wide": 0.1, "a.flag": True, "a.few": [1, 2, 3], "a.names": {"type": "str", "length": 100, "first": [f"n{i}" for i in range(8)]}}
    assert isinstance(metadata["a.base"], float) and metadata["a.flag"] is True


def test_metadata_of_a_directory_is_its_config(ingot):
    folder = DATA / "hf" / "llama"
    assert json.loads(ingot("inspect", folder, "--json").stdout)["metadata"] == json.loads((folder / "config.json").read_text())


def test_kernels_are_printed_as_they_are_timed(ingot):
    model = str(SOURCE / "models" / "demo.gguf")
    talk = Terminal("inspect", model, "--kernels", "--rows", "1,2")
    talk.wait_for(b"microseconds of a product")
    talk.wait_for(b"timing ")
    talk.wait_for(b"shape 1 of")
    talk.wait_for(b"1 rows   ")
    talk.wait_for(b"shape 2 of")
    talk.process.wait(timeout=60)
    piped = ingot("inspect", model, "--kernels", "--rows", "1,2")
    assert piped.stdout.count("2 rows   ") >= 2 and "timing" not in piped.stderr


def test_a_bench_says_where_it_is(ingot):
    talk = Terminal("bench", "-p", "8", "-n", "0", "-r", "2")
    talk.wait_for(b"share of measured peak |")
    talk.wait_for(b"pp8: 1 of 2")
    talk.wait_for(b"pp8: 2 of 2")
    talk.wait_for(b"| pp8 |")
    talk.process.wait(timeout=60)
    piped = ingot("bench", "-p", "8", "-n", "0", "-r", "2")
    assert piped.stderr == "" and "measured peak: " not in piped.stdout


def test_a_quantized_file_that_grew(ingot, tmp_path, models):
    small, big = tmp_path / "small.gguf", tmp_path / "big.gguf"
    done = ingot("quantize", models / "llama_bf16.gguf", small, "Q4_0")
    assert "larger" not in done.stderr
    done = ingot("quantize", small, big, "Q8_0", "--allow-requantize")
    assert "big.gguf is larger than the original model" in done.stderr


def test_parts_that_do_not_run_are_named(ingot, tmp_path):
    for model in ("vision/smolvlm", "ears/voxtral"):
        assert ingot("inspect", DATA / model).stderr == ""
    shutil.copytree(DATA / "ears" / "voxtral", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text()) | {"model_type": "of_2030", "vision_config": {}}
    path.write_text(json.dumps(config))
    assert ingot("inspect", tmp_path / "model").stderr == "ingot: warning: ingot does not run the eyes and the ears of this model\n"


def test_a_template_that_is_named_is_shown(ingot, tmp_path):
    shutil.copytree(DATA / "ears" / "voxtral", tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    shutil.copy(DATA / "tokenizers" / "tekken" / "tekken.json", tmp_path / "model")
    assert "[SYSTEM_PROMPT]" in ingot("inspect", tmp_path / "model", "--template").stdout
