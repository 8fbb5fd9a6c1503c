"""Third-party programs and packages for tests of the server. A program that the machine has is used. Otherwise it is
downloaded once into a folder next to the program. If that fails, the test is skipped."""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

BUILD = pathlib.Path(os.environ["INGOT"]).parent


def skip_unless(command, what, **options):
    try:
        made = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    except (subprocess.TimeoutExpired, OSError) as error:
        pytest.skip(f"{what} cannot be had here: {error}")
    if made.returncode != 0:
        pytest.skip(f"{what} cannot be had here: " + (made.stdout + made.stderr).strip()[-300:])


def python_with(*packages, room="clients-venv"):
    """A Python with these packages of PyPI. INGOT_CLIENTS_PYTHON names a Python that has them already. Packages that
    need conflicting versions get separate environments."""
    if given := os.environ.get("INGOT_CLIENTS_PYTHON"):
        return pathlib.Path(given)
    folder = BUILD / room
    python, ready = folder / "bin" / "python", folder / ("ready-" + packages[0].split(">")[0].split("[")[0])
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # concurrent tests use the same folder
        if not python.exists():
            skip_unless([sys.executable, "-m", "venv", folder], "a virtual environment")
        if not ready.exists():
            skip_unless([python, "-m", "pip", "-q", "install", "--retries", "1", *packages], ", ".join(packages))
            ready.touch()
    return python


def promtool():
    """Prometheus' own checker. Debian's package also has the server, so the package is only unpacked, not installed."""
    if found := shutil.which("promtool"):
        return found
    folder = BUILD / "promtool"
    program = folder / "usr" / "bin" / "promtool"
    if not program.exists():
        folder.mkdir(exist_ok=True)
        skip_unless(["apt-get", "-q", "-y", "download", "prometheus"], "promtool", cwd=folder)
        (package,) = folder.glob("prometheus_*.deb")
        skip_unless(f"dpkg-deb --fsys-tarfile {package.name} | tar x ./usr/bin/promtool && rm {package.name}", "promtool", cwd=folder, shell=True)
    return program
