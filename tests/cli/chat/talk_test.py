"""ingot chat as a person uses it: keys at the prompt, commands that change the conversation, and conversations that
continue later."""
import base64
import json
import os
import stat

import pytest
from conftest import SOURCE
from terminal_rig import Terminal

SUMS = {"What is 7 + 5?": "7 + 5 = 12.", "What is 1 + 1?": "1 + 1 = 2.", "What is 2 + 2?": "2 + 2 = 4."}


@pytest.fixture
def chat(ingot, tmp_path):
    """chat(lines, *args) -> (standard output, the messages in the end)"""

    def run(lines, *args):
        path = tmp_path / "saved.json"
        done = ingot("chat", "--temp", 0, *args, input="\n".join([*lines, f"/save {path}"]) + "\n")
        return done, json.loads(path.read_text())

    return run


def said(messages):
    return [m["content"] for m in messages]


def test_undo_edit_and_regen(chat):
    done, messages = chat(["What is 7 + 5?", "What is 1 + 1?", "/undo", "/edit What is 2 + 2?", "/regen"])
    assert done.stdout.split("\n")[:5] == ["7 + 5 = 12.", "1 + 1 = 2.", "Taken back: What is 1 + 1?", "2 + 2 = 4.", "2 + 2 = 4."]
    assert said(messages) == ["What is 2 + 2?", "2 + 2 = 4."]
    done, messages = chat(["/undo", "/regen", "/edit x"])
    assert messages == [] and done.stdout.count("There is no question") == 3


def test_regen_draws_another_answer(ingot, tmp_path):
    """The seed of the first answer would give the same answer."""
    lines = ["Tell me a story about a fox.", f"/save {tmp_path}/one", "/regen", f"/save {tmp_path}/two"]
    ingot("chat", "--temp", 1.5, "--seed", 7, "-n", 40, input="\n".join(lines) + "\n")
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("one", "two"))
    assert one[0] == two[0] and one[1] != two[1]


def test_a_turn_that_fails_again_keeps_the_old_answer(ingot, tmp_path):
    """/edit with a text that does not fit gives a message, and the conversation is unchanged."""
    lines = ["What is 7 + 5?", "/edit " + "word " * 200, f"/save {tmp_path}/saved"]
    done = ingot("chat", "--temp", 0, "-c", 64, input="\n".join(lines) + "\n")
    assert "64" in done.stderr and said(json.loads((tmp_path / "saved").read_text())) == ["What is 7 + 5?", "7 + 5 = 12."]


def test_load_goes_on_with_what_was_saved(chat, ingot, tmp_path):
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([{"role": "user", "content": "My name is Bramwell."}, {"role": "assistant", "content": "Hello Bramwell."}]))
    done, messages = chat([f"/load {path}", "What is my name?"])
    assert "The talk has 1 question." in done.stdout and "Your name is Bramwell." in done.stdout and len(messages) == 4
    for text, word in [("{}", "must be a JSON array"), ("[{", "line 1"), ('[{"role": "user"}]', "[0] is not a message"), ('[{"role": "wizard", "content": "x"}]', "[0] is not a message")]:
        path.write_text(text)
        done, messages = chat(["What is 7 + 5?", f"/load {path}"])
        assert word in done.stderr and str(path) in done.stderr and len(messages) == 2, "the talk stays as it was"
    assert "/nowhere" in chat(["/load /nowhere"])[0].stderr and "/load FILE" in chat(["/load"])[0].stdout


def test_model_and_tokens(chat, ingot):
    demo = SOURCE / "models" / "demo.gguf"
    done, messages = chat(["My name is Bramwell.", "/model /nowhere.gguf", f"/model {demo}", "What is my name?", "/tokens", "/tokens Hello there"])
    assert "/nowhere.gguf" in done.stderr and "Your name is Bramwell." in done.stdout and "Ingot Demo, context 2048 tokens." in done.stdout
    whole = json.loads(ingot("tokenize", demo, "Hello there", "--json", "--no-special").stdout)["ids"]
    assert f"\n{len(whole)} tokens.\n" in done.stdout and "of 2048 tokens." in done.stdout


def test_messages_of_several_lines(chat):
    for lines in (['"""', "one", "two", '"""'], ['"""one', 'two"""'], ["one\\", "two"]):
        assert said(chat(lines)[1])[0] == "one\ntwo", lines


def test_copy_needs_a_terminal(chat):
    assert "/save FILE" in chat(["What is 7 + 5?", "/copy"])[0].stdout


def test_ctrl_c_clears_the_line_and_then_asks():
    talk = Terminal("chat", "--temp", "0")
    talk.wait_for(b"> ")
    talk.type(b"rubbish")
    talk.wait_for(b"rubbish")
    talk.type(b"\x03")
    talk.wait_for(b"^C")
    talk.wait_for(b"> ")
    talk.type(b"What is 7 + 5?\r")
    talk.wait_for(b"= 12.")
    talk.wait_for(b"> ")
    talk.type(b"\x03")
    talk.wait_for(b"Leave? [y/N] ")
    talk.type(b"\r")
    talk.wait_for(b"> ")
    talk.type(b"What is 1 + 1?\r")
    talk.wait_for(b"= 2.")
    talk.wait_for(b"> ")
    talk.type(b"\x03")
    talk.wait_for(b"Leave? [y/N] ")
    talk.type(b"\x03")
    talk.ended()
    kept = json.loads(open(f"{talk.state}/ingot/chat.json").read())
    assert said(kept) == ["What is 7 + 5?", "7 + 5 = 12.", "What is 1 + 1?", "1 + 1 = 2."]


@pytest.mark.parametrize("answer", ["What is 7 + 5?", "yesterday", "No, go on"])
def test_what_is_typed_instead_of_yes_or_no_is_the_next_message(answer):
    talk = Terminal("chat", "--temp", "0", "-n", "4")
    talk.wait_for(b"> ")
    talk.type(b"\x03")
    talk.wait_for(b"Leave? [y/N] ")
    talk.type(answer.encode() + b"\r")
    talk.wait_for(b"> ")
    talk.wait_for(answer.encode())  # the user can edit it before Return
    talk.type(b"\r")
    talk.wait_for(b"> ")
    for word in (b"n", b" NO ", b""):
        talk.type(b"\x03")
        talk.wait_for(b"Leave? [y/N] ")
        talk.type(word + b"\r")
        talk.wait_for(b"> ")
    talk.type(b"\x03")
    talk.wait_for(b"Leave? [y/N] ")
    talk.type(b"Yes\r")
    talk.ended()
    kept = json.loads(open(f"{talk.state}/ingot/chat.json").read())
    assert kept[0]["content"] == answer and len(kept) == 2


def test_ctrl_c_ends_a_message_of_several_lines():
    talk = Terminal("chat", "--temp", "0")
    talk.wait_for(b"> ")
    talk.type(b"one\\\r")
    talk.wait_for("… ".encode())
    talk.type(b"two")
    talk.wait_for(b"two")
    talk.type(b"\x03")
    talk.wait_for(b"^C")
    talk.wait_for(b"> ")
    talk.leave()
    assert not os.path.exists(f"{talk.state}/ingot/chat.json")


def test_what_is_pasted_is_one_message(tmp_path):
    talk = Terminal("chat", "--temp", "0", state=tmp_path)
    talk.wait_for(b"> ")
    talk.type("\x1b[200~Grüße\rtwo\r\x1b[201~".encode())
    talk.wait_for(b"two")
    talk.type(b"three\r")
    talk.wait_for(b"three\r\n")
    talk.wait_for(b"> ")
    talk.leave()
    assert json.loads((tmp_path / "ingot" / "chat.json").read_text())[0]["content"] == "Grüße\ntwo\nthree"


def test_edit_and_copy_on_a_terminal():
    talk = Terminal("chat", "--temp", "0")
    talk.wait_for(b"> ")
    talk.type(b"What is 7 + 5?\r")
    talk.wait_for(b"= 12.")
    talk.wait_for(b"> ")
    talk.type(b"/edit\r")
    talk.wait_for(b"edit> ")
    talk.wait_for(b"7 + 5?")
    talk.type(b"\x7f\x7f6?\r")
    talk.wait_for(b"= 13.")
    talk.wait_for(b"> ")
    talk.type(b"/copy\r")
    talk.wait_for(b"\x1b]52;c;" + base64.b64encode(b"7 + 6 = 13.") + b"\x07")
    talk.leave()


def test_a_talk_that_goes_on(ingot, tmp_path):
    talk = Terminal("chat", "--temp", "0", state=tmp_path)
    talk.wait_for(b"> ")
    talk.type(b"My name is Bramwell.\r")
    talk.wait_for(b"Bramwell.\r\n")
    talk.wait_for(b"> ")
    talk.leave()
    path = tmp_path / "ingot" / "chat.json"
    talk = Terminal("chat", "--temp", "0", state=tmp_path)  # one without a question leaves the last one alone
    talk.wait_for(b"> ")
    talk.type(b"/tokens\r")
    talk.wait_for(b"0 of 2048 tokens")
    talk.wait_for(b"> ")
    talk.leave()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "nobody else reads it"
    talk = Terminal("chat", "--temp", "0", "--resume", state=tmp_path)
    talk.wait_for(b"> My name is Bramwell.")
    talk.wait_for(b"> ")
    talk.type(b"What is my name?\r")
    talk.wait_for(b"Your name is Bramwell.")
    talk.wait_for(b"> ")
    talk.leave()
    assert len(json.loads(path.read_text())) == 4
    # Without a terminal, only --resume saves the conversation.
    other = tmp_path / "other.json"
    ingot("chat", "--temp", 0, "--talk-file", other, input="What is 7 + 5?\n")
    assert not other.exists()
    for _ in range(2):
        ingot("chat", "--temp", 0, "--talk-file", other, "--resume", input="What is 7 + 5?\n")
    assert len(json.loads(other.read_text())) == 4
    done = ingot("chat", "--talk-file", other, "--resume", "--system", "Be brief.", ok=False)
    assert done.returncode == 2 and "--resume" in done.stderr
