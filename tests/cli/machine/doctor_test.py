"""`ingot doctor`, `ingot devices` and `ingot --version --json`: what they say about machines with one fault each."""

import json
import os
import re
import socket
import subprocess
import threading

import pytest
from conftest import SOURCE
from hub_rig import hub, run, seed  # noqa: F401 (fixtures)


def findings(run, *args, code=0, **options):
    done = run("doctor", "--json", *args, **options) if code == 0 else None
    if done is None:
        home = options.get("env") or {}
        done = subprocess.run(
            [os.environ["INGOT"], "doctor", "--json", *map(str, args)],
            env={"PATH": os.environ["PATH"], **home},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, done.stderr
    return {entry["what"]: entry for entry in json.loads(done.stdout)}


def test_a_good_machine(run, hub):
    found = findings(run)
    assert {"processor", "memory", "GPU", "models", "disk", "cache", "libcurl", "Hub", "port"} == set(found)
    for what in ("models", "cache", "libcurl", "Hub"):
        assert found[what]["health"] == "good" and found[what]["advice"] == "", found[what]
    assert hub.endpoint in found["Hub"]["text"]


def test_the_hub_does_not_answer(run):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        found = findings(run, env={"HF_ENDPOINT": f"http://127.0.0.1:{closed.getsockname()[1]}"})
    assert found["Hub"]["health"] == "limited" and "HTTPS_PROXY" in found["Hub"]["advice"]
    assert findings(run, "--offline")["Hub"]["text"].startswith("offline was asked for")


def test_the_hub_answers_with_a_fault(run, seed):
    status = seed.choice([500, 502, 503, 504])
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection = server.accept()[0]
            connection.recv(4096)
            connection.sendall(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        found = findings(run, env={"HF_ENDPOINT": f"http://127.0.0.1:{server.getsockname()[1]}"})
    assert found["Hub"]["health"] == "limited" and f"HTTP {status}" in found["Hub"]["text"]


def test_a_port_in_use(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = findings(run, "--port", port)["port"]
    assert found["health"] == "limited" and str(port) in found["text"] and "--port" in found["advice"]
    assert findings(run, "--port", port)["port"]["health"] == "good"


@pytest.mark.parametrize("variable, what", [("HF_HUB_CACHE", "models"), ("XDG_CACHE_HOME", "cache")])
def test_a_folder_that_is_a_file(run, tmp_path, variable, what):
    file = tmp_path / "file"
    file.write_text("")
    found = findings(
        run,
        "--offline",
        code=1,
        env={"HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub"), variable: str(file)},
    )
    assert found[what]["health"] == "broken" and "is not a folder" in found[what]["text"] and found[what]["advice"]
    assert [entry["what"] for entry in found.values() if entry["health"] == "broken"] == [what]


def test_nothing_is_left_behind(run, tmp_path):
    cache = tmp_path / "new" / "cache"
    assert findings(run, "--hf-cache", cache)["models"]["health"] == "good"
    assert not cache.parent.exists() and not list(tmp_path.rglob(".ingot-doctor*"))


def test_text_and_json_agree(run):
    lines = run("doctor", "--offline").stdout.splitlines()
    assert [line.split()[:2] for line in lines if not line.startswith(" ")] == [
        [entry["health"], entry["what"]] for entry in findings(run, "--offline").values()
    ]


def test_the_devices(run):
    devices = json.loads(run("devices", "--json").stdout)
    assert devices["devices"][0]["device"] == "cpu" and devices["devices"][0]["free_bytes"] > 0
    text = run("devices").stdout
    assert text.startswith("cpu ")
    assert ("cuda     not used: " in text) == bool(devices["cuda"]["why_not_used"])


def test_the_version_as_json(run):
    facts = json.loads(run("--version", "--json").stdout)
    assert run("--version").stdout == f"ingot {facts['version']}\n"
    assert facts["backends"][:2] == ["cpu", "ref"] and facts["compiler"] and facts["system"]
    if (SOURCE / ".git").exists():
        assert re.fullmatch("[0-9a-f]{40}", facts["commit"])
        subprocess.run(["git", "-C", str(SOURCE), "cat-file", "-e", facts["commit"]], check=True)
