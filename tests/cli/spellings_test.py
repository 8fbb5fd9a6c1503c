"""Spellings of other programs: other names of commands, and llama.cpp's flags."""
import json

import pytest
from conftest import SOURCE

ASK = ["-p", "What is 7 + 5?", "--temp", "0"]


def test_help_and_version(ingot):
    for args in ([], ["help"]):
        assert ingot(*args).stdout == ingot("--help").stdout
    assert ingot("help", "run").stdout == ingot("run", "--help").stdout
    assert ingot("version").stdout == ingot("--version").stdout
    assert ingot("list", "--help").stdout == ingot("ls", "--help").stdout


def test_a_question_behind_the_model(ingot):
    demo = ingot("run", *ASK).stdout
    model = SOURCE / "models" / "demo.gguf"
    assert ingot("run", model, "What is 7 + 5?", "--temp", 0).stdout == demo == "7 + 5 = 12.\n"


@pytest.mark.parametrize("flags", [["-ngl", "0"], ["-ngl", "99"], ["--n-gpu-layers=0"], ["-np", "4"], ["-ub", "64"], ["-tb", "2"], ["-fa"], ["-fa", "on"], ["--flash-attn=auto"], ["-cb"], ["--mlock", "--no-mmap"], ["--jinja"],
                                   ["-ncmoe", "3"], ["-cmoe"], ["-ot", "exps=CPU"], ["-sm", "none"], ["-ts", "1,1"], ["--no-warmup"], ["-ctv", "q8_0"]])
def test_flags_that_change_nothing(ingot, flags):
    done = ingot("run", *flags, *ASK)
    assert done.stdout == "7 + 5 = 12.\n"
    notes = [line for line in done.stderr.splitlines() if "note: flags of llama.cpp" in line]
    ours = any(part in flags[0] for part in ("gpu", "ngl", "moe", "-ot"))  # on the CPU, they ask for what is
    assert len(notes) == (0 if ours else 1), done.stderr
    assert all(flag.split("=")[0] in notes[0] for flag in flags if flag.startswith("-") and notes)


def test_one_note_for_all_of_them(ingot):
    done = ingot("run", "--mlock", "-fa", "on", *ASK, "-cb")
    assert done.stdout == "7 + 5 = 12.\n" and done.stderr.count("note:") == 1
    assert "--mlock (" in done.stderr and "-fa (" in done.stderr and "-cb (" in done.stderr


def test_flags_with_a_name_of_ours(ingot, tmp_path):
    assert ingot("run", "-ctk", "q8_0", *ASK).stdout == "7 + 5 = 12.\n"
    done = ingot("run", "-ctk", "q1", *ASK, ok=False)
    assert done.returncode == 2 and "q1" in done.stderr
    plain = ["-p", "Once upon a time", "--temp", 0, "-n", 8]
    assert ingot("run", *plain, "-no-cnv").stdout == ingot("run", *plain, "--raw").stdout != ingot("run", *plain).stdout
    system = ["-p", "What is the capital of France?", "--temp", 0]
    assert ingot("run", *system, "-sys", "Answer with one word or number.").stdout == "Paris\n"


def test_values_are_no_flags(ingot):
    """-fa after -p is the prompt."""
    done = ingot("run", "--raw", "-n", 1, "--json", "-p", "-fa")
    assert "note" not in done.stderr and json.loads(done.stdout)["prompt_tokens"] > 0


def test_unknown_flags_stay_unknown(ingot):
    assert ingot("run", "--flash", *ASK, ok=False).returncode == 2
    assert ingot("ls", "-cb", ok=False).returncode == 2


def test_a_chat_template_of_the_user(ingot, tmp_path):
    path = tmp_path / "chat.jinja"
    path.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    raw = ingot("run", "--raw", *ASK, "--json")
    for flags in (["--chat-template-file", path], ["--chat-template", path.read_text()]):
        given = ingot("run", *flags, *ASK, "--json")
        assert json.loads(given.stdout)["prompt_tokens"] == json.loads(raw.stdout)["prompt_tokens"]
    assert json.loads(ingot("run", "--chat-template", "chatml", *ASK, "--json").stdout)["prompt_tokens"] > json.loads(raw.stdout)["prompt_tokens"]
    path.write_text("{% for %}")
    done = ingot("run", "--chat-template-file", path, *ASK, ok=False)
    assert done.returncode == 1 and "line 1" in done.stderr and done.stderr.count("\n") == 1
