"""The sources for Windows alone still fit the headers of the others: Debian's cross compiler parses them, where it is
installed (`scripts/setup.sh windows`). Before, only `make packages` and `make test-windows` would see a fault."""
import os
import pathlib
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
COMPILER = "x86_64-w64-mingw32-g++-posix"
FILES = sorted((SOURCE / "src").rglob("*_windows.cc"))
LIBRARIES = ["fmt", "nlohmann", "CLI", "boost", "openssl", "utf8proc.h"]  # headers that do not depend on the system


@pytest.fixture(scope="module")
def headers(tmp_path_factory):
    """A folder with these libraries alone: the system's own headers are not those of Windows."""
    folder = tmp_path_factory.mktemp("headers")
    for name in LIBRARIES:
        for place in ("/usr/include", "/usr/include/x86_64-linux-gnu"):
            if os.path.exists(f"{place}/{name}") and not (folder / name).exists():
                (folder / name).symlink_to(f"{place}/{name}")
    return folder


def parsed(file, headers):
    return subprocess.run(
        [COMPILER, "-std=c++20", "-fsyntax-only", f"-I{SOURCE}/src", f"-I{headers}", "-DINGOT_VERSION=\"0\"",
         "-D_WIN32_WINNT=0x0A00", "-DWIN32_LEAN_AND_MEAN", "-DNOMINMAX", file],
        capture_output=True, text=True,
    )


@pytest.mark.skipif(not shutil.which(COMPILER), reason=f"no {COMPILER}")
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_it_is_parsed(file, headers):
    done = parsed(file, headers)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which(COMPILER), reason=f"no {COMPILER}")
def test_a_changed_function_is_seen(headers, tmp_path):
    """The fault that this test was written for: a caller that lacks an argument."""
    good = next(file for file in FILES if "open_temporary(name, 0600)" in file.read_text())
    bad = tmp_path / good.name
    bad.write_text(good.read_text().replace("open_temporary(name, 0600)", "open_temporary(name)"))
    done = parsed(bad, headers)
    assert done.returncode != 0 and "open_temporary" in done.stderr
