"""Shared by the tests of the Hub: a fake server (fake_hub.py), the program with a separate home, and random files."""
import os
import random
import subprocess

import fake_hub
import pytest

SEED = int(os.environ.get("INGOT_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


@pytest.fixture(autouse=True)
def seed():
    print("seed", SEED)  # pytest shows it when a test fails
    return random.Random(SEED)


@pytest.fixture
def hub():
    server = fake_hub.FakeHub()
    yield server
    server.close()


@pytest.fixture
def run(hub, tmp_path):
    """run(*args, code=0) -> CompletedProcess, with a separate home and the fake Hub."""
    home = tmp_path / "home"

    def run(*args, code=0, env=None, popen=False, **kwargs):
        settings = {"PATH": os.environ["PATH"], "HOME": str(home), "HF_ENDPOINT": hub.endpoint} | (env or {})
        settings = {k: v for k, v in settings.items() if v is not None}
        settings |= {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
        command = [os.environ["INGOT"], *map(str, args)]
        if popen:
            return subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
        done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, **kwargs)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        if code:
            assert done.stdout == "" and done.stderr.count("\n") == 1, (done.stdout, done.stderr)
        return done

    run.cache = home / ".cache/huggingface/hub"
    return run


def blob_folder(run, repo="org/repo"):
    return run.cache / ("models--" + repo.replace("/", "--")) / "blobs"


def layout(root):
    """Every file and link (with its target) below a folder. Lock files by name only."""
    return {str(p.relative_to(root)): os.readlink(p) if p.is_symlink() else p.stat().st_size for p in sorted(root.rglob("*")) if not p.is_dir()}


def quants(seed, n=3000, names=("Q4_K_M", "Q8_0", "F16")):
    return {f"model-{q}.gguf": seed.randbytes(n + i) for i, q in enumerate(names)} | {"README.md": b"# Model\n", "config.json": b"{}"}
