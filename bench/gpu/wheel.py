#!/usr/bin/env python3
"""Runs the Python package of a wheel on a device: bench/gpu/wheel.py WHEEL [DEVICE], with cuda as the default.

The wheel is unpacked into a new environment without pip and without a network. The wheel's dependencies (NumPy, and
NVIDIA's packages of cuBLAS and NVRTC) are linked from the Python that runs this script. The device must give the same
answer as the reference."""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import venv
import zipfile

CHECK = """
import sys
import numpy as np
import ingot
from ingot import Model

device = sys.argv[1]
ref, model = Model.load(device="ref"), Model.load(device=device)
question = "What is 7 + 5?"
answers = [m.chat(question, max_tokens=20, temperature=0).text for m in (ref, model)]
assert answers == ["7 + 5 = 12."] * 2, answers
ids = model.tokenize("Once upon a time there was a fox.")
error = np.abs(model.logits(ids) - ref.logits(ids)).max()
assert error < 0.1, error
print(f"{ingot.__file__}: {device} answers '{answers[1]}', logits within {error:.1e} of the reference's")
"""


def make_room(room, wheel):
    venv.create(room, with_pip=False)
    [site] = room.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            pathlib.Path(archive.extract(entry, site)).chmod(entry.external_attr >> 16 | 0o600)
    for name in ("numpy", "nvidia"):
        found = importlib.util.find_spec(name)
        if not found and name == "numpy":
            sys.exit(f"wheel: {sys.executable} has no NumPy, which the package needs: use a Python that has it")
        for folder in found.submodule_search_locations if found else []:
            (site / name).symlink_to(folder)
            libraries = pathlib.Path(folder + ".libs")
            if libraries.exists():
                (site / libraries.name).symlink_to(libraries)
            break
    return site


def main(wheel, device="cuda"):
    with tempfile.TemporaryDirectory() as folder:
        room = pathlib.Path(folder)
        site = make_room(room, wheel)
        python = room / "bin" / "python"
        needs = subprocess.run(["ldd", site / "ingot/lib/libingot.so"], capture_output=True, text=True, check=True).stdout
        for line in needs.splitlines():
            if "cublas" in line or "nvrtc" in line or "not found" in line:
                print(line.strip())
        subprocess.run([python, "-I", "-c", CHECK, device], check=True, cwd=room)
        command = [python, "-I", "-m", "ingot", "run", "--device", device, "--temp", "0", "-n", "20", "-p", "What is 7 + 5?"]
        said = subprocess.run(command, check=True, cwd=room, capture_output=True, text=True).stdout
        assert said.strip() == "7 + 5 = 12.", said
        print(f"python -m ingot run --device {device}: {said.strip()}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: bench/gpu/wheel.py WHEEL [DEVICE]")
    main(*sys.argv[1:])
