"""The programs of docs/c-api.md compile without a warning and run on the demo model."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
LIBRARY = pathlib.Path(os.environ["INGOT_LIBRARY"])
PAGE = (SOURCE / "docs" / "c-api.md").read_text()
PROGRAMS = re.findall(r"^```c\n(.*?)^```", PAGE, re.S | re.M)
SAYS = [r"\S+ \S+.*\n\[\d+ tokens, \d+ of the prompt cached\]\n", r'(\{"content":"[a-z ]+"\}\n|\{\}\n)+', r"Once upon a\.\.\. time\n",
        r"a red fox, a brown fox: 0\.\d+\na red fox, seven dollars: -?0\.\d+\n"]


@pytest.mark.parametrize("number", range(len(SAYS)))
def test_a_program_of_the_page(number, tmp_path):
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    assert len(PROGRAMS) == len(SAYS)
    (tmp_path / "program.c").write_text(PROGRAMS[number])
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}/include", tmp_path / "program.c", LIBRARY, "-o", tmp_path / "program",
               f"-Wl,-rpath,{LIBRARY.parent}"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run([tmp_path / "program", SOURCE / "models" / "demo.gguf"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "" and re.fullmatch(SAYS[number], done.stdout, re.S), done.stdout + done.stderr


def test_the_page_names_functions_that_there_are():
    header = (SOURCE / "include" / "ingot" / "ingot.h").read_text()
    assert not [name for name in set(re.findall(r"\bingot_\w+", PAGE)) if name not in header and not name.endswith("_")]
