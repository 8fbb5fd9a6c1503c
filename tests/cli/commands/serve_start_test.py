"""The messages of `ingot serve` when a model is loaded, and the user's chat template for all requests."""
import contextlib
import http.client
import json
import os
import re
import subprocess

import pytest


@contextlib.contextmanager
def serving(*args):
    """Returns the port, and the output until the server was ready."""
    command = [os.environ["INGOT"], "serve", "--port", "0", "--access-log", "none", *map(str, args)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        said = ""
        while "server is ready" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        yield int(re.search(r"listening on http://[\d.]+:(\d+)", said)[1]), said
        process.terminate()
        process.stderr.read()
    assert process.returncode == 0


def test_the_memory_of_the_cache_is_told(tmp_path):
    with serving("--kv-tokens", 4096) as (_, said):
        found = re.search(r"; ([\d.]+) MiB of memory taken, ([\d.]+) MiB of it for the 4096 tokens of the KV cache", said)
        assert found and 0 < float(found[2]) < float(found[1]), said


@pytest.mark.parametrize("flag", ["--chat-template-file", "--chat-template"])
def test_a_chat_template_of_the_user(tmp_path, flag):
    source = "{% for m in messages %}<<{{ m.content }}>>{% endfor %}"
    path = tmp_path / "chat.jinja"
    path.write_text(source)
    with serving(flag, path if flag.endswith("file") else source) as (port, _):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/apply-template", json.dumps({"messages": [{"role": "user", "content": "hello"}]}), {"Content-Type": "application/json"})
        assert json.loads(connection.getresponse().read())["prompt"] == "<<hello>>"
        connection.close()
