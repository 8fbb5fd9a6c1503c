"""The documents generated from the program's help are current. The completion scripts work in bash, zsh and fish."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
PROGRAM, SHARE = os.environ["INGOT"], SOURCE / "share"
needs_bash, needs_zsh, needs_fish, needs_man = (pytest.mark.skipif(not shutil.which(name), reason=f"no {name}") for name in ("bash", "zsh", "fish", "man"))


def test_they_are_current():
    done = subprocess.run([sys.executable, "-B", SOURCE / "scripts" / "docs" / "make.py", PROGRAM, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["run", "serve", "bench engine", "grammar check", "quantize", "ls"])
def test_every_flag_of_the_help_is_in_them(ingot, command):
    """Finds the flags in the help with different code from the generator's."""
    flags = {f for line in ingot(*command.split(), "--help-all").stdout.splitlines() if (m := re.match(r"  (-\S+)", line)) for f in m[1].split(",")}
    hub = {"--revision", "--hf-file", "--hf-token", "--hf-endpoint", "--hf-cache", "--hf-timeout", "--offline"}
    assert len(flags) > 3
    page = (SOURCE / "docs" / "cli.md").read_text().split(f"\n## ingot {command}\n")[1].split("\n## ")[0]
    assert {f for f in flags - hub if f"`{f}`" not in page} == {"-h", "--help", "--help-all"}
    fish = (SHARE / "fish" / "vendor_completions.d" / "ingot.fish").read_text()
    lines = [line for line in fish.splitlines() if f'__ingot_is "{command}"' in line]
    assert not [f for f in flags if not any(f" -{'l' if f.startswith('--') else 's'} {f.lstrip('-')} " in line for line in lines)]


def test_every_description_of_the_help_is_in_the_reference(ingot):
    page = " ".join((SOURCE / "docs" / "cli.md").read_text().replace("\\", "").split())
    said = [line[30:].strip() for line in ingot("run", "--help-all").stdout.splitlines() if len(line) > 30 and line.startswith("  ") and line[28:30].strip() == ""]
    assert len(said) > 50 and not [text for text in said if " ".join(text.split()) not in page and not text.startswith("Print ")]


def test_every_message_is_in_the_troubleshooting():
    """Finds the messages' beginnings, up to the first argument, in the source with different code from the
    generator's."""
    page = " ".join((SOURCE / "docs" / "troubleshooting.md").read_text().replace("\\", "").split())
    starts = {found[1].strip() for path in (SOURCE / "src").rglob("*.cc") for found in re.finditer(r'throw (?:Usage)?Error\(\s*"([^"{}\\]{25,})', path.read_text())}
    assert len(starts) > 100 and not [start for start in starts if " ".join(start.split()) not in page]


def test_every_field_of_the_api_is_in_the_reference():
    api = json.loads((SOURCE / "src" / "server" / "web" / "openapi.json").read_text())
    page = (SOURCE / "docs" / "http.md").read_text()
    for path, operations in api["paths"].items():
        for method in operations:
            assert f"\n## {method.upper()} {path}\n" in page
    chat = page.split("\n### ChatRequest\n")[1].split("\n### ")[0]
    assert not [name for name in api["components"]["schemas"]["ChatRequest"]["properties"] if f"\n- `{name}` (" not in chat]


@needs_man
def test_the_man_page_has_no_fault():
    done = subprocess.run(["man", "--warnings", "-l", SHARE / "man" / "man1" / "ingot.1"], capture_output=True, text=True, env=os.environ | {"MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0 and done.stderr == "" and "--json-schema" in done.stdout and "EXIT STATUS" in done.stdout


def bash(line, cwd):
    script = f'source "{SHARE}/bash-completion/completions/ingot"; COMP_WORDS=({line}); [[ "{line}" == *" " ]] && COMP_WORDS+=(""); ' \
             'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); compopt() { :; }; _ingot; printf "%s\\n" "${COMPREPLY[@]}"'
    return subprocess.run(["bash", "-uc", script], capture_output=True, text=True, check=True, cwd=cwd).stdout.split()


def fish(line, cwd):
    script = f'source "{SHARE}/fish/vendor_completions.d/ingot.fish"; complete -C "{line}"'
    said = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True, cwd=cwd, env=os.environ | {"HOME": str(cwd)})
    assert said.stderr == ""
    return [row.split("\t")[0] for row in said.stdout.splitlines()]


def zsh(line, cwd):
    """A shell on a terminal that lists the completions, without control characters."""
    rc = f'fpath=("{SHARE}/zsh/site-functions" $fpath)\nautoload -Uz compinit && compinit -u -D\nPS1="ready> "\nunsetopt menu_complete auto_menu beep\nsetopt auto_list\n' \
         'zstyle ":completion:*" list-separator " -- "\nLISTMAX=9999\n'
    (cwd / ".zshrc").write_text(rc)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execvpe("zsh", ["zsh", "-i"], os.environ | {"ZDOTDIR": str(cwd), "TERM": "dumb", "COLUMNS": "200", "LINES": "500"})
    shown = b""

    def read_until(text):
        nonlocal shown
        end = time.monotonic() + 60
        while time.monotonic() < end and text not in shown:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536)

    read_until(b"ready> ")
    mark = len(shown)
    os.write(terminal, line.encode() + b"\t\t\x15echo the-end\n")  # the second: what there is beyond a common beginning
    read_until(b"\nthe-end")
    os.write(terminal, b"exit\n")
    os.close(terminal)
    os.waitpid(pid, 0)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown[mark:].decode(errors="replace")).split("echo the-end")[0].split()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.gguf").touch()
    return tmp_path


@pytest.fixture
def hub_cache(tmp_path_factory, monkeypatch):
    """A cache of the Hub with one model, and this program on the PATH."""
    cache = tmp_path_factory.mktemp("hub")
    commit = "1" * 40
    repo = cache / "models--somebody--small-GGUF"
    blob, snapshot = repo / "blobs" / ("2" * 40), repo / "snapshots" / commit
    for made in (blob.parent, snapshot, repo / "refs"):
        made.mkdir(parents=True)
    shutil.copy(SOURCE / "models" / "demo.gguf", blob)
    (snapshot / "small-Q8_0.gguf").symlink_to(blob)
    (repo / "refs" / "main").write_text(commit)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("PATH", f"{pathlib.Path(PROGRAM).absolute().parent}:{os.environ['PATH']}")
    return cache


def test_the_values_of_completions_are_in_the_descriptions():
    sys.path.insert(0, str(SOURCE / "scripts" / "docs"))
    import completions
    import program_help

    options = [o for c in program_help.read_commands(PROGRAM) for o in c.options]
    for name, values in completions.VALUES.items():
        texts = [option.text for option in options if name in option.names]
        assert texts and all(any(value in text for text in texts) for value in values.split()), name


@pytest.mark.parametrize("shell", [pytest.param(bash, marks=needs_bash), pytest.param(fish, marks=needs_fish), pytest.param(zsh, marks=needs_zsh)])
class TestShell:
    def test_commands(self, shell, folder):
        words = shell("ingot ", folder)
        assert {"run", "chat", "serve", "quantize"} <= set(words)
        assert {"perplexity", "pull"} <= set(shell("ingot p", folder))

    def test_commands_below_commands(self, shell, folder):
        assert {"batch", "engine", "serve", "grammar"} <= set(shell("ingot bench ", folder))

    def test_flags(self, shell, folder):
        words = set(shell("ingot run --js", folder))
        assert "--json-schema" in words and "--json" in words and "--temp" not in words
        assert "--slo-ttft-ms" in " ".join(shell("ingot bench serve --slo", folder))

    def test_values(self, shell, folder):
        assert {"auto", "off", "ngram", "draft", "mtp", "eagle3"} <= set(shell("ingot run --speculate ", folder))

    def test_values_of_options_that_take_others_too(self, shell, folder):
        assert {"cpu", "cuda", "auto", "ref"} <= set(shell("ingot run --device ", folder))
        assert {"f16", "q8_0"} <= set(shell("ingot serve --kv-type ", folder))

    def test_downloaded_models(self, shell, folder, hub_cache):
        for line in ("ingot run ", "ingot chat some", "ingot run --draft ", "ingot bench "):
            assert any("somebody/small-GGUF" in word for word in shell(line, folder)), line
        (folder / "module.txt").touch()  # with one file, zsh would go on to the next word
        assert not any("somebody" in word for word in shell("ingot run --file ", folder))

    def test_files(self, shell, folder):
        assert any("model.gguf" in word for word in shell("ingot run mod", folder))
