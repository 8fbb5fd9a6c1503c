#!/usr/bin/env python3
"""Makes the Python package's wheel from a build folder that has the program and the library: scripts/wheel.py BUILD OUT.

Runs in a Python that has scikit-build-core, whose PEP 517 hook it calls. Nothing is compiled, so it takes seconds.
"""
import os
import pathlib
import sys

from scikit_build_core.build import build_wheel

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main(build, out):
    build, out = pathlib.Path(build).resolve(), pathlib.Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    print(out / build_wheel(str(out), {"build-dir": str(build / "wheel-files"), "cmake.define.INGOT_BUILD": str(build)}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
