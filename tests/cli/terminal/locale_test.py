"""The prompt of `chat` takes UTF-8 in every locale."""
import json

import pytest
from terminal_rig import Terminal

LOCALES = [{"LC_ALL": "C"}, {"LC_ALL": "", "LC_CTYPE": "", "LANG": ""}, {"LC_ALL": "POSIX"}, {"LC_ALL": "nowhere.UTF-8"},
           {"LC_ALL": "C.UTF-8"}]


@pytest.mark.parametrize("env", LOCALES, ids=lambda env: env["LC_ALL"] or "none")
def test_characters_stay_what_they_are(env, tmp_path):
    said = "Grüße, лиса, 狐狸 🦊"
    chat = Terminal("chat", "--temp", "0", "-n", "5", state=tmp_path, env=env)
    chat.wait_for(b"> ")
    chat.type(said.encode() + b"\r")
    chat.wait_for(said.encode() + b"\r\n")
    chat.wait_for(b"> ")
    chat.type("\x1b[200~zwei Zeilen: é\rà\x1b[201~\r".encode())
    chat.wait_for("à".encode() + b"\r\n")
    chat.wait_for(b"> ")
    chat.leave()
    kept = json.loads((tmp_path / "ingot" / "chat.json").read_text())
    assert [m["content"] for m in kept if m["role"] == "user"] == [said, "zwei Zeilen: é\nà"]
