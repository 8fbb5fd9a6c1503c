"""scripts/weight_parts.py: a file that another file mostly contains is packed, and unpacked to the same bytes."""
import os
import random
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(os.environ["INGOT_SOURCE"]) / "scripts/weight_parts.py"


def run(command, root):
    return subprocess.run([sys.executable, "-B", SCRIPT, command, root], capture_output=True, text=True)


def test_what_a_gguf_file_contains_is_kept_once(tmp_path):
    drawn = random.Random(1)
    rows = [drawn.randbytes(96) for _ in range(40)]
    (tmp_path / "models").mkdir()
    (tmp_path / "models/a.gguf").write_bytes(b"head" + b"".join(rows))
    for name in ("a", "b"):  # b has no GGUF file
        (tmp_path / "hf" / name).mkdir(parents=True)
        (tmp_path / "hf" / name / "model.safetensors").write_bytes(drawn.randbytes(33) + b"".join(reversed(rows)) + b"end")
    path = tmp_path / "hf/a/model.safetensors"
    weights = path.read_bytes()
    assert run("pack", tmp_path).returncode == 0
    packed = path.with_name("model.safetensors.parts")
    assert packed.stat().st_size < len(weights) / 2 and [p.name for p in tmp_path.rglob("*.parts")] == [packed.name]
    assert (tmp_path / ".gitignore").read_text().splitlines()[1:] == ["/hf/a/model.safetensors"]

    path.unlink()
    assert run("unpack", tmp_path).returncode == 0
    assert path.read_bytes() == weights

    other = tmp_path / "models/a.gguf"
    other.write_bytes(other.read_bytes()[::-1])
    os.utime(other, (packed.stat().st_mtime + 9,) * 2)
    failed = run("unpack", tmp_path)
    assert failed.returncode == 1 and "does not fit" in failed.stderr
    assert path.read_bytes() == weights
