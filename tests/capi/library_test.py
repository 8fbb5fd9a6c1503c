"""The effects of libingot.so on a program that loads it: few other libraries, only its own symbols, no output on
standard error, and no mention of ingot's command line."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
LIBRARY, PROGRAM = os.environ["INGOT_LIBRARY"], os.environ["INGOT"]
# The libraries that libingot.so needs, except those of C, C++ and the GPU.
LIBRARIES = {"libcrypto", "libfmt", "libpcre2-8", "libutf8proc", "libjpeg", "libpng16", "libwebp", "libwebpdemux", "libgif"}
SYSTEM = {"libc", "libm", "libgcc_s", "libstdc++", "libdl", "libpthread", "librt", "ld-linux-x86-64", "ld-linux-aarch64"}


def dynamic(path):
    return subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout


def test_it_needs_few_libraries():
    needed = {name.split(".so")[0] for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic(LIBRARY))}
    assert needed - SYSTEM - {"libcuda", "libcublasLt"} == LIBRARIES


@pytest.mark.parametrize("path", [LIBRARY, PROGRAM])
def test_what_the_loader_fills_in_is_read_only(path):
    assert "BIND_NOW" in dynamic(path)
    headers = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout
    assert "GNU_RELRO" in headers


def test_no_build_path_is_in_it(tmp_path):
    """Also checks the compiler's output without ccache, because ccache may rewrite paths."""
    folder = str(SOURCE).encode()
    assert folder not in pathlib.Path(LIBRARY).read_bytes() and folder not in pathlib.Path(PROGRAM).read_bytes()
    commands = json.loads((pathlib.Path(LIBRARY).parent / "compile_commands.json").read_text())
    entry = next(c for c in commands if c["file"].endswith("src/quant/format.cc"))  # has CHECKs, which name their file
    command = re.sub(r" -o \S+", f" -o {tmp_path / 'format.o'}", entry["command"])
    subprocess.run(command, shell=True, cwd=entry["directory"], env=os.environ | {"CCACHE_DISABLE": "1"}, check=True)
    made = (tmp_path / "format.o").read_bytes()
    assert folder not in made and b"src/quant/format" in made


def test_it_shows_the_c_api_alone():
    said = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    shown = {line.split()[-1] for line in said.splitlines()}
    declared = re.findall(r"INGOT_API [^;(]*?(ingot_\w+)\(", (SOURCE / "include/ingot/ingot.h").read_text())
    assert shown == set(declared)


def sources():
    """Every source of the library, without comments. The library excludes the Hub and the program's own sources."""
    for folder in ["base", "quant", "text", "io", "backend", "model", "engine", "capi"]:
        for path in sorted((SOURCE / "src" / folder).rglob("*")):
            name = str(path.relative_to(SOURCE / "src"))
            if path.suffix in {".cc", ".h", ".cu", ".cuh"} and not name.startswith("io/hub/"):
                yield name, re.sub(r"//[^\n]*", "", path.read_text())


def test_no_message_names_a_flag():
    texts = [(name, text) for name, source in sources() for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', source)]
    assert len(texts) > 1000
    of_compiler = "backend/cuda/nvrtc.cc"  # its flags are those of NVRTC
    named = [(name, text) for name, text in texts if re.search(r"(^|[ (])--[a-z]{2}", text) and name != of_compiler]
    assert named == []


def test_nothing_is_written_to_standard_error():
    """Except by CHECK and by failed assertions of the JSON library, before they abort."""
    written = [name for name, source in sources() if re.search(r"\bstderr\b|\bcerr\b|\bstdout\b|STD(ERR|OUT)_FILENO|perror\(", source)]
    assert sorted(written) == ["base/check.h", "base/json.h"]


HEARD = """
import ctypes as c, json, sys
lib = c.CDLL(sys.argv[1])
heard = []
hear = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda level, text, user: heard.append([level, text.decode(), user]))
n = []
for least in (None, 1, 2, None):
    lib.ingot_set_log(hear if least is not None else None, least or 0, c.c_void_p(7))
    handle = c.c_void_p()
    assert lib.ingot_load(sys.argv[2].encode(), None, c.byref(handle)) == 0
    lib.ingot_free(handle)
    n.append(len(heard))
print(json.dumps({"heard": heard, "n": n}))
"""


def test_what_it_has_to_say_goes_to_the_callback(tmp_path):
    """Messages about a model with a broken template: first without a callback, then from INFO on, then only warnings,
    then without a callback again."""
    for path in (SOURCE / "tests/data/hf/qwen2").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "chat_template.jinja").write_text("{% for %}")
    done = subprocess.run([sys.executable, "-c", HEARD, LIBRARY, tmp_path], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    said = json.loads(done.stdout)
    n = said["n"]
    assert n[0] == 0 < n[1] < n[2] == n[3]
    first, second = said["heard"][: n[1]], said["heard"][n[1] :]
    assert {level for level, _, _ in first} == {1, 2} and {level for level, _, _ in second} == {2}
    assert [text for level, text, _ in first if level == 2] == [text for _, text, _ in second]
    assert any("chat template is invalid" in text for _, text, _ in second)
    assert all(user == 7 for _, _, user in said["heard"])


LOST = """
import ctypes as c, faulthandler, os, signal, sys
lib = c.CDLL(sys.argv[1])
before = signal.getsignal(signal.SIGBUS)
handle = c.c_void_p()
assert lib.ingot_load(sys.argv[2].encode(), None, c.byref(handle)) == 0
assert signal.getsignal(signal.SIGBUS) == before
for line in open("/proc/self/status"):
    if line.startswith("SigCgt:"):
        assert not int(line.split()[1], 16) >> signal.SIGBUS - 1 & 1
lib.ingot_free(handle)
"""


def test_signals_stay_the_hosts():
    """As ingot.h documents, the host must handle the SIGBUS of a truncated model file."""
    subprocess.run([sys.executable, "-c", LOST, LIBRARY, SOURCE / "tests/data/models/qwen3.gguf"], check=True)
