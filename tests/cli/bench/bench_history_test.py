"""ingot bench history: its results for an older program that is faster, slower, equally fast, or broken."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

INGOT = os.environ["INGOT"]
FASTER, SLOWER = 1e6, 1e-6  # farther apart than any two measurements of the same program


def history(base, *args):
    return subprocess.run([INGOT, "bench", "history", "--base", base, *args], capture_output=True, text=True, timeout=600)


@pytest.fixture
def base(tmp_path):
    """A program that reports the real program's rates times a factor."""
    def make(scale):
        path = tmp_path / "base"
        path.write_text(f"""#!{sys.executable}
import json, subprocess, sys
print("warn: an older program")
rows = json.loads(subprocess.run([{INGOT!r}, *sys.argv[1:]], capture_output=True, text=True, check=True).stdout)
for row in rows:
    row["avg_ts"] *= {scale}
print("[\\n" + ",\\n".join(map(json.dumps, rows)) + "\\n]")
""")
        path.chmod(0o755)
        return path
    return make


ARGS = ["--shape", "smollm-135m", "-p", "4", "-n", "2", "--rounds", "1", "-t", "1"]


def test_slower_faster_and_the_same(base):
    slower = history(base(FASTER), *ARGS)
    assert slower.returncode == 1 and "2 of 2 tests became slower by more than 3 %" in slower.stderr and slower.stdout.count("| slower |") == 2
    faster = history(base(SLOWER), *ARGS)
    assert faster.returncode == 0 and faster.stdout.count("| faster |") == 2 and "pp4" in faster.stdout and "tg2" in faster.stdout
    same = history(base(1), *ARGS, "--threshold", "100000")  # per cent: a busy machine may double a rate
    assert same.returncode == 0 and same.stdout.count("| same |") == 2, same.stdout + same.stderr


def test_a_base_that_does_not_measure(tmp_path):
    path = tmp_path / "broken"
    path.write_text("#!/bin/sh\necho no such flag >&2\nexit 2\n")
    path.chmod(0o755)
    done = history(path, *ARGS)
    assert done.returncode == 1 and "failed: no such flag" in done.stderr
    assert history(tmp_path / "none", *ARGS).returncode == 2
    assert subprocess.run([INGOT, "bench", "history"], capture_output=True).returncode == 2
