"""Faults of the Hugging Face Hub (fake_hub.py). Every fault gives a clear error, no file in a wrong place, and a state
from which the next try continues."""
import fcntl
import hashlib
import json
import pathlib
import resource
import signal
import time

import fake_hub
import pytest
from hub_rig import blob_folder, hub, quants, run, seed  # noqa: F401 (fixtures)


# --- cuts ---


def test_cut_connections_are_resumed(hub, run, seed):
    content = seed.randbytes(200_000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.cuts["m.gguf"] = [seed.randrange(1, 90_000), 0, seed.randrange(1, 90_000)]
    path = run("pull", "org/repo").stdout.strip()
    assert pathlib.Path(path).read_bytes() == content
    assert hub.sent["m.gguf"] == len(content)  # no byte twice
    ranges = [h.get("range") for role, _, h in hub.requests if role == "store"]
    assert ranges[0] is None and all(r.startswith("bytes=") for r in ranges[1:]) and len(ranges) == 4


def test_what_was_cut_is_kept_for_the_next_run(hub, run, seed):
    content = seed.randbytes(300_000)
    digest = hashlib.sha256(content).hexdigest()
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.cuts["m.gguf"] = [123_456] + [0] * 9
    error = run("pull", "org/repo", code=1).stderr
    assert "gave up after 5 attempts at byte 123456 of 300000" in error and "repeat the command to continue" in error
    assert (blob_folder(run) / f"{digest}.incomplete").read_bytes() == content[:123_456]
    assert not (run.cache / "models--org--repo/refs").exists()
    entries = json.loads(run("ls", "--json").stdout)
    assert [(e["label"], e["bytes"]) for e in entries] == [("partial", 123_456)]
    hub.cuts.clear()
    hub.sent.clear()
    assert pathlib.Path(run("pull", "org/repo").stdout.strip()).read_bytes() == content
    assert hub.sent["m.gguf"] == 300_000 - 123_456
    assert [p.name for p in blob_folder(run).iterdir()] == [digest]


@pytest.mark.parametrize("how", ["ignores_range", "wrong_range", "too_long", "stale", "unsized", "whole"])
def test_resuming_what_cannot_be_resumed(hub, run, seed, how):
    content = seed.randbytes(50_000)
    digest = hashlib.sha256(content).hexdigest()
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    blob_folder(run).mkdir(parents=True)
    left = {"too_long": content + b"more", "stale": seed.randbytes(20_000), "whole": content}.get(how, content[:20_000])
    (blob_folder(run) / f"{digest}.incomplete").write_bytes(left)
    if how == "ignores_range":
        hub.ignores_range.add("m.gguf")
    elif how == "wrong_range":
        hub.wrong_range["m.gguf"] = [19_999]
    elif how == "unsized":
        hub.unsized.add("m.gguf")
    path = run("pull", "org/repo").stdout.strip()
    assert pathlib.Path(path).read_bytes() == content
    expected = {"whole": None, "unsized": 30_000, "stale": 80_000, "wrong_range": 80_000}.get(how, 50_000)
    assert hub.sent.get("m.gguf") == expected


@pytest.mark.parametrize("how", ["wrong_range", "refuses_range", "ignores_range", "a byte at a time"])
def test_a_server_that_makes_no_progress_is_given_up(hub, run, seed, how):
    """The server cuts the connection, and retries get no new bytes or almost none."""
    content = seed.randbytes(50_000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.cuts["m.gguf"] = [20_000] * 99
    if how == "wrong_range":
        hub.wrong_range["m.gguf"] = [1] * 99
    elif how == "a byte at a time":
        hub.cuts["m.gguf"] = [20_000] + [1] * 99
    else:
        getattr(hub, how).add("m.gguf")
    assert "gave up after 5 attempts" in run("pull", "org/repo", code=1).stderr
    assert len([r for r in hub.requests if r[0] == "store"]) == 5


def test_a_wait_is_told(hub, run, seed):
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": seed.randbytes(5000)})
    hub.overrides["/revision/"] = [(429, {"Retry-After": "3"}, b""), (429, {"Retry-After": "1"}, b"")]
    said = run("pull", "org/repo").stderr
    assert said == f"ingot: {hub.endpoint} answers HTTP 429: asking again in 3 s\n"


def test_what_was_left_beside_a_whole_blob_goes(hub, run, seed):
    content = seed.randbytes(5000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    path = run("pull", "org/repo").stdout
    left = blob_folder(run) / f"{hashlib.sha256(content).hexdigest()}.incomplete"
    left.write_bytes(content[:1000])
    lock = next((run.cache / ".locks/models--org--repo").iterdir())
    with open(lock) as file:  # another process holds the lock
        fcntl.flock(file, fcntl.LOCK_EX)
        assert run("pull", "org/repo").stdout == path and left.exists()
    assert run("pull", "org/repo").stdout == path and not left.exists()
    assert len([r for r in hub.requests if r[0] == "store"]) == 1


def test_range_not_satisfiable(hub, run, seed):
    content = seed.randbytes(50_000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    blob_folder(run).mkdir(parents=True)
    (blob_folder(run) / f"{hashlib.sha256(content).hexdigest()}.incomplete").write_bytes(content[:10])
    hub.overrides["/resolve/"] = [(416, {"Content-Range": "bytes */5"}, b"")]
    assert pathlib.Path(run("pull", "org/repo").stdout.strip()).read_bytes() == content


def test_stalls_are_cut(hub, run, seed):
    content = seed.randbytes(100_000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.cuts["m.gguf"] = [40_000]
    hub.stalls.add("m.gguf")
    start = time.monotonic()
    assert pathlib.Path(run("pull", "org/repo", "--hf-timeout", "1").stdout.strip()).read_bytes() == content
    assert time.monotonic() - start < 20 and hub.sent["m.gguf"] == 100_000


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_and_resumed(hub, run, seed, number):
    content = seed.randbytes(1_000_000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.chunk["m.gguf"], hub.pause["m.gguf"] = 10_000, 0.02
    process = run("pull", "org/repo", popen=True)
    part = blob_folder(run) / f"{hashlib.sha256(content).hexdigest()}.incomplete"
    wait_for(lambda: part.exists() and part.stat().st_size > 50_000)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert out == "" and process.returncode == (130 if number == signal.SIGINT else -9)
    if number == signal.SIGINT:
        assert "interrupted; the downloaded part is kept" in err and err.count("\n") == 1
    kept = part.stat().st_size
    assert 50_000 < kept < len(content) and part.read_bytes() == content[:kept]
    hub.pause.clear()
    hub.sent.clear()
    assert pathlib.Path(run("pull", "org/repo").stdout.strip()).read_bytes() == content
    assert hub.sent["m.gguf"] == len(content) - kept


def test_two_at_once_download_once(hub, run, seed):
    content = seed.randbytes(400_000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.chunk["m.gguf"], hub.pause["m.gguf"] = 20_000, 0.02
    processes = [run("pull", "org/repo", popen=True) for _ in range(3)]
    outputs = [p.communicate(timeout=60) for p in processes]
    assert [p.returncode for p in processes] == [0, 0, 0], outputs
    assert len({out for out, _ in outputs}) == 1 and hub.sent["m.gguf"] == 400_000
    assert pathlib.Path(outputs[0][0].strip()).read_bytes() == content


# --- lies ---


def test_wrong_hash_is_not_kept(hub, run, seed):
    files = {"a-Q4_K_M-00001-of-00002.gguf": seed.randbytes(5000), "a-Q4_K_M-00002-of-00002.gguf": seed.randbytes(5000)}
    second = "a-Q4_K_M-00002-of-00002.gguf"
    hub.repos["org/repo"] = fake_hub.Repo(files)
    bad = bytearray(files[second])
    bad[seed.randrange(len(bad))] ^= 1 << seed.randrange(8)
    hub.corrupted[second] = bytes(bad)
    error = run("pull", "org/repo", code=1).stderr
    digest = hashlib.sha256(files[second]).hexdigest()
    assert f"'{second}': the downloaded file has the hash {hashlib.sha256(bad).hexdigest()}, not {digest}" in error and "try again" in error
    assert [p.name for p in blob_folder(run).iterdir()] == [hashlib.sha256(files["a-Q4_K_M-00001-of-00002.gguf"]).hexdigest()]
    hub.corrupted.clear()
    hub.sent.clear()
    run("pull", "org/repo")
    assert list(hub.sent) == [second]


def test_small_files_are_checked_too(hub, run, models):
    files = {p.name: p.read_bytes() for p in (models.parent / "hf" / "qwen2").iterdir()}
    hub.repos["org/repo"] = fake_hub.Repo(files)
    hub.corrupted["config.json"] = files["config.json"].replace(b"qwen2", b"qwen3")
    assert "'config.json': the downloaded file has the hash" in run("pull", "org/repo", code=1).stderr


@pytest.mark.parametrize(
    "path",
    ["../../../x.gguf", "/etc/x.gguf", "a/../../x.gguf", "..\\x.gguf", "C:\\x.gguf", "a//x.gguf", "./x.gguf", "x\0.gguf", "x\x1b[31m.gguf", "", "y" * 300 + ".gguf"],
)
def test_hostile_paths(hub, run, seed, path, tmp_path):
    content = seed.randbytes(100)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.listed["m.gguf"] = fake_hub.entry("m.gguf", content) | {"path": path}
    before = sorted(tmp_path.rglob("*"))
    error = run("pull", "org/repo", code=1).stderr
    assert "not a path inside a repository" in error and "\x1b" not in error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "change, word",
    [
        ({"lfs": {"oid": "../../../../x" + "0" * 50, "size": 100}}, "not a hash"),
        ({"lfs": {"oid": "0" * 63, "size": 100}}, "not a hash"),
        ({"lfs": {"oid": "0" * 64, "size": -1}}, "out of range"),
        ({"lfs": {"oid": "0" * 64, "size": "100"}}, "expected an integer"),
        ({"lfs": {"oid": "0" * 64, "size": 1 << 49}}, "not enough disk space"),
        ({"lfs": {"oid": "0" * 64, "size": 100}}, "try again later"),  # the store has a different hash
        ({"lfs": {"size": 100}}, "'oid' is missing"),
        ({"path": 7}, "expected a string"),
        ({"type": None}, "is null"),
    ],
)
def test_hostile_listings(hub, run, seed, change, word):
    content = seed.randbytes(100)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.listed["m.gguf"] = fake_hub.entry("m.gguf", content) | change
    assert word in run("pull", "org/repo", code=1).stderr


@pytest.mark.parametrize(
    "pattern, answer, word",
    [
        ("/revision/", (200, {}, b"<html>login</html>"), "is not JSON"),
        ("/revision/", (200, {}, {"sha": "main"}), "not a commit"),
        ("/revision/", (200, {}, {"sha": "../" * 13 + "x"}), "not a commit"),
        ("/revision/", (200, {}, b"[" * 100_000), "nested"),
        ("/revision/", (200, {}, b'{"a":"' + b"x" * (17 << 20) + b'"}'), "longer than"),
        ("/revision/", (302, {"Location": "file:///etc/passwd"}, b""), "only https"),
        ("/revision/", (302, {"Location": "ftp://127.0.0.1/x"}, b""), "only https"),
        ("/revision/", (302, {"Location": "http://"}, b""), "not an address"),
        ("/tree/", (200, {}, {}), "expected an array"),
        ("/tree/", (200, {"Link": '<file:///etc/passwd>; rel="next"'}, []), "only https"),
        ("/tree/", (500, {}, b""), "HTTP 500"),
        ("/revision/", (418, {"X-Error-Message": "\x1b[31mtea"}, b""), "HTTP 418"),
        ("/resolve/", (404, {}, b"Entry not found"), "no file"),
        ("/resolve/", (200, {"X-Repo-Commit": "0" * 40}, b"x" * 100), "answered for commit"),
        ("/resolve/", (200, {"X-Linked-Etag": '"' + "0" * 64 + '"'}, b"x" * 100), "has a file with the hash"),
        ("/resolve/", (200, {}, b"x" * 101), "the server has 101 bytes"),
        ("/resolve/", (200, {"Content-Length": "100", "X": "y" * 99_000}, b"x" * 100), "headers"),
    ],
)
def test_hostile_answers(hub, run, seed, pattern, answer, word):
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": seed.randbytes(100)})
    hub.overrides[pattern] = [answer] * 9
    error = run("pull", "org/repo", code=1).stderr
    assert word in error and "\x1b" not in error and "root:" not in error
    assert not list(run.cache.rglob("*.gguf"))


def test_redirects_have_an_end(hub, run):
    hub.overrides["/revision/"] = [(302, {"Location": "/api/models/org/repo/revision/main"}, b"")] * 99
    assert "more than 8 redirects" in run("pull", "org/repo", code=1).stderr


def test_more_than_was_listed(hub, run, seed):
    """Without a length in the headers, only counting the bytes detects this."""
    content = seed.randbytes(1000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.unsized.add("m.gguf")
    hub.corrupted["m.gguf"] = content + b"x"
    assert "more than the 1000 bytes" in run("pull", "org/repo", code=1).stderr
    hub.corrupted["m.gguf"] = content[:-1]
    assert "gave up" in run("pull", "org/repo", code=1).stderr


def test_index_that_names_others(hub, run, models):
    files = {p.name: p.read_bytes() for p in (models.parent / "hf" / "llama_bf16").iterdir()}
    for name, word in (("../x.safetensors", "plain name"), ("x.bin", "plain name"), ("no.safetensors", "not in the repository")):
        index = {"weight_map": {"w": name}}
        hub.repos["org/repo"] = fake_hub.Repo(files | {"model.safetensors.index.json": json.dumps(index).encode()})
        assert word in run("pull", "org/repo", code=1).stderr


# --- the disk ---


def test_disk_full(hub, run, seed):
    content = seed.randbytes(500_000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    limit = seed.randrange(100_000, 400_000)
    done = run("pull", "org/repo", code=1, restore_signals=False,  # Python ignores SIGXFSZ, and so will the program
               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert "cannot write" in done.stderr and ".incomplete" in done.stderr and "free some space" in done.stderr
    part = blob_folder(run) / f"{hashlib.sha256(content).hexdigest()}.incomplete"
    assert part.read_bytes() == content[:limit]
    hub.sent.clear()
    assert pathlib.Path(run("pull", "org/repo").stdout.strip()).read_bytes() == content
    assert hub.sent["m.gguf"] == len(content) - limit


def test_cache_that_cannot_be_made(hub, run, seed, tmp_path):
    hub.repos["org/repo"] = fake_hub.Repo(quants(seed))
    (tmp_path / "file").write_text("")
    assert "cannot create the folder" in run("pull", "org/repo", "--hf-cache", tmp_path / "file", code=1).stderr


def test_damaged_blobs_and_links_are_mended(hub, run, seed):
    files = quants(seed)
    hub.repos["org/repo"] = fake_hub.Repo(files)
    path = pathlib.Path(run("pull", "org/repo").stdout.strip())
    path.resolve().write_bytes(b"short")
    assert pathlib.Path(run("pull", "org/repo").stdout.strip()).read_bytes() == files["model-Q4_K_M.gguf"]
    path.unlink()
    path.symlink_to("../../blobs/nothing")
    run("pull", "org/repo")
    assert path.read_bytes() == files["model-Q4_K_M.gguf"] and hub.sent["model-Q4_K_M.gguf"] == 6000


# --- without a network ---


def test_offline(hub, run, models):
    hub.repos["org/repo"] = fake_hub.Repo({"m-F16.gguf": (models / "llama_f16.gguf").read_bytes(), "m-Q4_K_M.gguf": b"x"})
    error = run("inspect", "org/repo", "--offline", code=1).stderr
    assert "is not in" in error and "ingot pull org/repo" in error and hub.requests == []
    path = run("pull", "org/repo:F16").stdout
    asked = len(hub.requests)
    assert run("pull", "org/repo", "--offline").stdout == path  # the downloaded file, although Q4_K_M is preferred
    run("inspect", "org/repo", env={"HF_HUB_OFFLINE": "1"})
    assert "has no 'Q4_K_M': it has F16" in run("run", "org/repo:Q4_K_M", "-p", "x", "--offline", code=1).stderr
    assert len(hub.requests) == asked


def test_where_the_cache_is(run, tmp_path):
    """huggingface_hub's order. A flag has precedence."""
    order = [("HF_HUB_CACHE", "a", "a"), ("HF_HOME", "b", "b/hub"), ("XDG_CACHE_HOME", "c", "c/huggingface/hub"), ("HOME", "~", "~/.cache/huggingface/hub")]
    env = {name: str(tmp_path / value) for name, value, _ in order}
    for name, _, expected in order:
        assert f"is not in '{tmp_path}/{expected}'" in run("pull", "org/repo", "--offline", env=env, code=1).stderr
        assert "is not in 'flag'" in run("pull", "org/repo", "--offline", "--hf-cache", "flag", env=env, code=1).stderr
        env[name] = None
    assert f"is not in '{tmp_path}/x'" in run("pull", "org/repo", "--offline", env={"HOME": str(tmp_path), "HF_HUB_CACHE": "~/x"}, code=1).stderr
    assert "HF_HUB_DOWNLOAD_TIMEOUT" in run("pull", "org/repo", env={"HF_HUB_DOWNLOAD_TIMEOUT": "soon"}, code=1).stderr


def test_offline_shards(hub, run, models):
    hub.repos["org/repo"] = fake_hub.Repo({p.name: p.read_bytes() for p in (models.parent / "hf" / "llama_bf16").iterdir()})
    folder = pathlib.Path(run("pull", "org/repo").stdout.strip())
    (folder / "model-00002-of-00003.safetensors").unlink()
    error = run("inspect", "org/repo", "--offline", code=1).stderr
    assert "'model-00002-of-00003.safetensors' is not in the cache" in error and "ingot pull" in error


def test_a_hub_that_cannot_be_reached(hub, run, models):
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": (models / "llama.gguf").read_bytes()})
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:1"}
    assert "127.0.0.1:1" in run("inspect", "org/repo", env=nowhere, code=1).stderr
    run("pull", "org/repo")
    done = run("inspect", "org/repo", env=nowhere)
    assert "using the cached files" in done.stderr
    assert "127.0.0.1:1" in run("pull", "org/repo", env=nowhere, code=1).stderr  # pull reports the failure
    hub.overrides["/revision/"] = [(503, {}, b"")] * 9
    assert "using the cached files" in run("inspect", "org/repo").stderr
