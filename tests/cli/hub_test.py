"""The Hugging Face Hub, against a server on this machine that speaks its protocol (fake_hub.py): what is downloaded and where it lies, and
for every fault a clear error and a state that the next try goes on from."""
import fcntl
import hashlib
import importlib.util
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import threading
import time

import fake_hub
import pytest

SEED = random.SystemRandom().randrange(1 << 32)


@pytest.fixture(autouse=True)
def seed():
    print("seed", SEED)  # pytest shows it when a test fails
    return random.Random(SEED)


@pytest.fixture
def hub():
    server = fake_hub.FakeHub()
    yield server
    server.close()


@pytest.fixture
def run(hub, tmp_path):
    """run(*args, code=0) -> CompletedProcess, with its own home and that Hub."""
    home = tmp_path / "home"

    def run(*args, code=0, env=None, popen=False, **kwargs):
        settings = {"PATH": os.environ["PATH"], "HOME": str(home), "HF_ENDPOINT": hub.endpoint} | (env or {})
        settings = {k: v for k, v in settings.items() if v is not None}
        settings |= {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
        command = [os.environ["INGOT"], *map(str, args)]
        if popen:
            return subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
        done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, **kwargs)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        if code:
            assert done.stdout == "" and done.stderr.count("\n") == 1, (done.stdout, done.stderr)
        return done

    run.cache = home / ".cache/huggingface/hub"
    return run


def blob_folder(run, repo="org/repo"):
    return run.cache / ("models--" + repo.replace("/", "--")) / "blobs"


def layout(root):
    """Every file, link and its target below a folder; of lock files the names."""
    return {str(p.relative_to(root)): os.readlink(p) if p.is_symlink() else p.stat().st_size for p in sorted(root.rglob("*")) if not p.is_dir()}


def quants(seed, n=3000, names=("Q4_K_M", "Q8_0", "F16")):
    return {f"model-{q}.gguf": seed.randbytes(n + i) for i, q in enumerate(names)} | {"README.md": b"# Model\n", "config.json": b"{}"}


# --- what comes, and where it lies ---


def test_layout(hub, run, seed):
    files = quants(seed)
    hub.repos["org/repo"] = repo = fake_hub.Repo(files)
    done = run("pull", "org/repo")
    digest = hashlib.sha256(files["model-Q4_K_M.gguf"]).hexdigest()
    path = run.cache / "models--org--repo" / "snapshots" / repo.commit / "model-Q4_K_M.gguf"
    assert done.stdout == f"{path}\n" and done.stderr == ""
    tree = layout(run.cache)
    tag = tree.pop("CACHEDIR.TAG")
    assert tag > 40 and (run.cache / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert tree == {
        f".locks/models--org--repo/{digest}.lock": 0,
        f"models--org--repo/blobs/{digest}": 3000,
        f"models--org--repo/snapshots/{repo.commit}/model-Q4_K_M.gguf": f"../../blobs/{digest}",
        "models--org--repo/refs/main": 40,
    }
    assert (run.cache / "models--org--repo/refs/main").read_text() == repo.commit
    assert path.read_bytes() == files["model-Q4_K_M.gguf"]
    assert run("pull", "org/repo").stdout == f"{path}\n"
    assert hub.sent == {"model-Q4_K_M.gguf": 3000}


def hub_layout():
    """tools/hub_layout/make.py, and what huggingface_hub made by it."""
    source = pathlib.Path(os.environ["INGOT_SOURCE"])
    spec = importlib.util.spec_from_file_location("make_hub_layout", source / "tools/hub_layout/make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    return make, json.loads((source / "tests/data/hub/layout.json").read_text())["layout"]


def test_layout_is_that_of_huggingface_hub(hub, run):
    make, golden = hub_layout()
    for name, facts in make.REPOS.items():
        hub.repos[name] = make.repo(name)
        for revision, tag in facts["pull"]:
            run("pull", name + (f":{tag}" if tag else ""), "--revision", revision)
    assert make.layout(run.cache) == golden


def test_reads_the_cache_of_huggingface_hub(hub, run):
    make, golden = hub_layout()
    for name, text in golden.items():
        path = run.cache / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if "/snapshots/" in name:
            path.symlink_to(text)
            (path.parent / text).parent.mkdir(parents=True, exist_ok=True)
            (path.parent / text).write_bytes(make.content("/".join(name.split("/")[3:])))
        elif "/blobs/" not in name:
            path.write_text(text or "")
    for name, facts in make.REPOS.items():
        hub.repos[name] = make.repo(name)
        for revision, tag in facts["pull"]:
            for flags in (["--offline"], []):
                report = json.loads(run("pull", name + (f":{tag}" if tag else ""), "--revision", revision, "--json", *flags).stdout)
                assert sorted(f["path"] for f in report["files"]) == sorted(facts["files"]) and report["commit"] == hub.repos[name].commit
    assert hub.sent == {} and make.layout(run.cache) == golden


@pytest.mark.parametrize(
    "tag, expected",
    [
        ("", "model-Q4_K_M.gguf"),
        (":latest", "model-Q4_K_M.gguf"),
        (":q8_0", "model-Q8_0.gguf"),
        (":F16", "model-F16.gguf"),
    ],
)
def test_quant_tags(hub, run, seed, tag, expected):
    hub.repos["org/repo"] = fake_hub.Repo(quants(seed))
    assert pathlib.Path(run("pull", "org/repo" + tag).stdout.strip()).name == expected
    assert list(hub.sent) == [expected]


def test_unknown_tag_lists_what_there_is(hub, run, seed):
    hub.repos["org/repo"] = fake_hub.Repo(quants(seed))
    error = run("pull", "org/repo:Q3_K_S", code=1).stderr
    assert "org/repo has no 'Q3_K_S': it has F16, Q4_K_M, Q8_0" in error


def test_split_files_and_folders(hub, run, seed):
    parts = {f"UD-Q2_K_XL/big-UD-Q2_K_XL-0000{i}-of-00003.gguf": seed.randbytes(2000 + i) for i in (1, 2, 3)}
    hub.repos["org/repo"] = repo = fake_hub.Repo(parts | {"mmproj-F16.gguf": b"x", "imatrix.gguf": b"y"})
    path = pathlib.Path(run("pull", "org/repo:q2_k_xl").stdout.strip())
    assert path.name == "big-UD-Q2_K_XL-00001-of-00003.gguf" and path.parent.name == "UD-Q2_K_XL"
    assert sorted(hub.sent) == sorted(parts)
    assert os.readlink(path).startswith("../../../blobs/")
    for name, content in parts.items():
        assert (run.cache / "models--org--repo/snapshots" / repo.commit / name).read_bytes() == content
    hub.repos["org/other"] = fake_hub.Repo(dict(list(parts.items())[:2]))
    assert "is split in 3 files, of which 2 are there" in run("pull", "org/other", code=1).stderr


def test_safetensors_directory_runs(hub, run, models):
    source = models.parent / "hf" / "llama_bf16"
    files = {p.name: p.read_bytes() for p in source.iterdir()}
    junk = {"pytorch_model.bin": b"pickle", "modeling_evil.py": b"import os", "consolidated.safetensors": b"again", "README.md": b"hello"}
    hub.repos["org/repo"] = fake_hub.Repo(files | junk)
    hub.page = 3  # the list of files comes in pages
    report = json.loads(run("pull", "org/repo", "--json").stdout)
    assert {f["path"] for f in report["files"]} == set(files) and report["label"] == "safetensors"
    assert not set(hub.sent) & set(junk)
    asked = len(hub.requests)
    facts = json.loads(run("inspect", "org/repo", "--json", "--offline").stdout)
    assert facts["name"] == "org/repo" and facts["files"] == 3 and len(hub.requests) == asked
    text = run("run", "-hf", "org/repo", "-p", "the cat", "--raw", "-n", "4", "--temp", "0", "--device", "ref").stdout
    local = run("run", source, "-p", "the cat", "--raw", "-n", "4", "--temp", "0", "--device", "ref").stdout
    assert text == local and text.strip()


def test_every_verb_takes_a_hub_name(hub, run, models, tmp_path):
    hub.repos["org/repo"] = fake_hub.Repo({"m-F16.gguf": (models / "llama_f16.gguf").read_bytes()})
    (tmp_path / "text").write_text("the cat and the hat " * 40)
    ids = run("tokenize", "-hf", "org/repo", "the cat", "--ids").stdout
    assert ids == run("tokenize", models / "llama_f16.gguf", "the cat", "--ids").stdout and hub.sent
    run("inspect", "org/repo:F16")
    run("logits", "hf.co/org/repo", "--tokens", "1,2", "-o", tmp_path / "x.npy", "--device", "ref")
    run("perplexity", "org/repo", "-f", tmp_path / "text", "-c", "32", "--chunks", "1", "--device", "ref")
    run("bench", "-m", "hf://org/repo", "-p", "8", "-n", "0", "-r", "1", "-o", "json")
    run("run", "--hf-repo=org/repo", "-p", "-hf", "--raw", "-n", "1")
    assert hub.sent["m-F16.gguf"] == (models / "llama_f16.gguf").stat().st_size  # once


def test_a_path_that_exists_wins(hub, run, models, tmp_path):
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "repo").symlink_to(models / "llama.gguf")
    run("inspect", "org/repo", cwd=tmp_path)
    assert hub.requests == []
    assert "No such file" in run("inspect", "org/missing.gguf", code=1).stderr and hub.requests == []
    error = run("inspect", "org/repo", code=1).stderr
    assert "no repository org/repo" in error and "is no file or directory here" in error


def test_file_revision_and_new_commits(hub, run, seed):
    first, second = quants(seed), quants(seed)
    second["model-Q8_0.gguf"] = first["model-Q8_0.gguf"]
    hub.repos["org/repo"] = repo = fake_hub.Repo(first, revisions=("main", "refs/pr/1"))
    old = repo.commit
    assert run("pull", "org/repo", "-hff", "model-F16.gguf", "--revision", "refs/pr/1").stdout.endswith(f"{old}/model-F16.gguf\n")
    assert (run.cache / "models--org--repo/refs/refs/pr/1").read_text() == old
    run("pull", "org/repo:Q8_0")
    repo.update(second)
    sent = dict(hub.sent)
    assert repo.commit in run("pull", "org/repo:Q8_0").stdout and hub.sent == sent  # the same blob, linked again
    assert old in run("pull", "org/repo:Q8_0", "--revision", old).stdout
    assert "has no revision 'v9'" in run("pull", "org/repo", "--revision", "v9", code=1).stderr
    assert "has no file 'x.gguf'" in run("pull", "org/repo", "-hff", "x.gguf", code=1).stderr
    assert "is no revision" in run("pull", "org/repo", "--revision", "../x", code=1).stderr


# --- who may ---


def test_the_token_goes_to_the_hub_alone(hub, run, seed):
    hub.repos["org/repo"] = fake_hub.Repo(quants(seed), private=True)
    run("pull", "org/repo", env={"HF_TOKEN": "hf_right"})
    seen = {(role, headers.get("authorization")) for role, _, headers in hub.requests}
    assert seen == {("hub", "Bearer hf_right"), ("store", None)}


def test_refusals_say_what_to_do(hub, run, seed, tmp_path):
    hub.repos |= {"org/private": fake_hub.Repo(quants(seed), private=True), "org/gated": fake_hub.Repo(quants(seed), gated=True)}
    for name in ("org/private", "org/nothing"):
        error = run("pull", name, code=1).stderr
        assert f"there is no repository {name} for you" in error and "HF_TOKEN" in error and "HTTP 401" in error
    assert "there is no repository org/nothing" in run("pull", "org/nothing", "-hft", "hf_right", code=1).stderr
    assert "access token was refused" in run("pull", "org/private", "--hf-token", "hf_wrong", code=1).stderr
    for token in (None, "hf_right"):
        error = run("pull", "org/gated", env={"HF_TOKEN": token}, code=1).stderr
        assert f"accepted first: do so at {hub.endpoint}/org/gated" in error
    assert "control character" in run("pull", "org/private", "--hf-token", "a\nb", code=1).stderr
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text("hf_right\n")
    assert f"{tmp_path}/hf/hub/models--org--private" in run("pull", "org/private", env={"HF_HOME": str(tmp_path / "hf")}).stdout


def test_too_many_requests(hub, run, seed):
    hub.repos["org/repo"] = fake_hub.Repo(quants(seed))
    hub.overrides["/revision/"] = [(429, {"Retry-After": "1"}, b""), (503, {}, b"")]
    start = time.monotonic()
    run("pull", "org/repo")
    assert time.monotonic() - start >= 1
    hub.overrides["/revision/"] = [(429, {}, b"")] * 9
    assert "too many requests" in run("pull", "org/repo", code=1).stderr


def test_bad_command_lines(run, hub):
    for args in (["pull"], ["pull", "repo"], ["pull", "a/b/c"], ["pull", "../x"], ["rm", "a--b/c"], ["rm"], ["inspect", "hf://x"],
                 ["inspect", "x.gguf", "--revision", "main"], ["ls", "x"]):
        run(*args, code=2)
    assert "https://" in run("pull", "a/b", "--hf-endpoint", "ftp://x", code=1).stderr
    assert "--hf-cache" in run("pull", "a/b", env={"HOME": None}, code=2).stderr
    assert hub.requests == []


# --- cuts ---


def test_cut_connections_are_resumed(hub, run, seed):
    content = seed.randbytes(200_000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.cuts["m.gguf"] = [seed.randrange(1, 90_000), 0, seed.randrange(1, 90_000)]
    path = run("pull", "org/repo").stdout.strip()
    assert pathlib.Path(path).read_bytes() == content
    assert hub.sent["m.gguf"] == len(content)  # nothing twice
    ranges = [h.get("range") for role, _, h in hub.requests if role == "store"]
    assert ranges[0] is None and all(r.startswith("bytes=") for r in ranges[1:]) and len(ranges) == 4


def test_what_was_cut_is_kept_for_the_next_run(hub, run, seed):
    content = seed.randbytes(300_000)
    digest = hashlib.sha256(content).hexdigest()
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.cuts["m.gguf"] = [123_456] + [0] * 9
    error = run("pull", "org/repo", code=1).stderr
    assert "gave up after 5 attempts at byte 123456 of 300000" in error and "goes on from there" in error
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
        hub.wrong_range["m.gguf"] = 19_999
    elif how == "unsized":
        hub.unsized.add("m.gguf")
    path = run("pull", "org/repo").stdout.strip()
    assert pathlib.Path(path).read_bytes() == content
    expected = {"whole": None, "unsized": 30_000, "stale": 80_000, "wrong_range": 80_000}.get(how, 50_000)
    assert hub.sent.get("m.gguf") == expected


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
        assert "interrupted; what has come is kept" in err and err.count("\n") == 1
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
    assert f"'{second}': what came has the hash {hashlib.sha256(bad).hexdigest()}, not {digest}" in error and "try again" in error
    assert [p.name for p in blob_folder(run).iterdir()] == [hashlib.sha256(files["a-Q4_K_M-00001-of-00002.gguf"]).hexdigest()]
    hub.corrupted.clear()
    hub.sent.clear()
    run("pull", "org/repo")
    assert list(hub.sent) == [second]


def test_small_files_are_checked_too(hub, run, models):
    files = {p.name: p.read_bytes() for p in (models.parent / "hf" / "qwen2").iterdir()}
    hub.repos["org/repo"] = fake_hub.Repo(files)
    hub.corrupted["config.json"] = files["config.json"].replace(b"qwen2", b"qwen3")
    assert "'config.json': what came has the hash" in run("pull", "org/repo", code=1).stderr


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
    assert "no path inside a repository" in error and "\x1b" not in error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "change, word",
    [
        ({"lfs": {"oid": "../../../../x" + "0" * 50, "size": 100}}, "no hash"),
        ({"lfs": {"oid": "0" * 63, "size": 100}}, "no hash"),
        ({"lfs": {"oid": "0" * 64, "size": -1}}, "out of range"),
        ({"lfs": {"oid": "0" * 64, "size": "100"}}, "expected an integer"),
        ({"lfs": {"oid": "0" * 64, "size": 1 << 49}}, "not enough disk space"),
        ({"lfs": {"oid": "0" * 64, "size": 100}}, "try again later"),  # the store has another
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
        ("/revision/", (200, {}, {"sha": "main"}), "no commit"),
        ("/revision/", (200, {}, {"sha": "../" * 13 + "x"}), "no commit"),
        ("/revision/", (200, {}, b"[" * 100_000), "nested"),
        ("/revision/", (200, {}, b'{"a":"' + b"x" * (17 << 20) + b'"}'), "longer than"),
        ("/revision/", (302, {"Location": "file:///etc/passwd"}, b""), "only https"),
        ("/revision/", (302, {"Location": "ftp://127.0.0.1/x"}, b""), "only https"),
        ("/revision/", (302, {"Location": "http://"}, b""), "no address"),
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
    """Without a length in the headers, only counting tells."""
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
    assert run("pull", "org/repo", "--offline").stdout == path  # what there is, though Q4_K_M would be preferred
    run("inspect", "org/repo", env={"HF_HUB_OFFLINE": "1"})
    assert "has no 'Q4_K_M': it has F16" in run("run", "org/repo:Q4_K_M", "-p", "x", "--offline", code=1).stderr
    assert len(hub.requests) == asked


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
    assert "using what the cache has" in done.stderr
    assert "127.0.0.1:1" in run("pull", "org/repo", env=nowhere, code=1).stderr  # who pulls wants to know
    hub.overrides["/revision/"] = [(503, {}, b"")] * 9
    assert "using what the cache has" in run("inspect", "org/repo").stderr


# --- ls and rm ---


def test_ls(hub, run, seed, models):
    assert run("ls").stdout == "" and run("ls", "--json").stdout == "[]\n"
    files = quants(seed)
    hub.repos |= {"org/repo": fake_hub.Repo(files), "b/dir": fake_hub.Repo({p.name: p.read_bytes() for p in (models.parent / "hf" / "qwen2").iterdir()})}
    for name in ("org/repo:Q8_0", "org/repo:F16", "b/dir"):
        run("pull", name)
    entries = json.loads(run("ls", "--json").stdout)
    assert [(e["repo"], e["label"], e["revisions"]) for e in entries] == [
        ("b/dir", "safetensors", ["main"]), ("org/repo", "F16", ["main"]), ("org/repo", "Q8_0", ["main"])]
    assert entries[2]["bytes"] == len(files["model-Q8_0.gguf"]) and pathlib.Path(entries[2]["path"]).read_bytes() == files["model-Q8_0.gguf"]
    assert entries[0]["bytes"] == sum(len(c) for p, c in hub.repos["b/dir"].files.items())
    assert abs(time.time() - time.mktime(time.strptime(entries[0]["last_used"], "%Y-%m-%dT%H:%M:%SZ")) + time.timezone) < 300
    lines = run("ls").stdout.splitlines()
    assert lines[0].split() == ["MODEL", "QUANT", "REVISION", "SIZE", "USED"] and len(lines) == 4
    assert lines[3].split()[:3] == ["org/repo", "Q8_0", "main"]


def test_ls_of_a_cache_that_is_not_ours(run, seed):
    repo = run.cache / "models--x--y"
    commit = "%040x" % seed.getrandbits(160)
    (repo / "snapshots" / commit).mkdir(parents=True)
    (repo / "snapshots" / commit / "evil\x1b[31m.gguf").symlink_to("/etc/passwd")
    (repo / "snapshots" / commit / "gone-Q8_0.gguf").symlink_to("../../blobs/nothing")
    (repo / "snapshots" / "not-a-commit").mkdir()
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text("\x1b[31m")
    (run.cache / "datasets--x--y").mkdir()
    (run.cache / "models--..--z").mkdir()
    out = run("ls").stdout
    assert "\x1b" not in out and len(out.splitlines()) == 2
    run("rm", "x/y", "--yes")
    assert pathlib.Path("/etc/passwd").exists() and not repo.exists()


def test_rm_keeps_what_others_need(hub, run, seed):
    first, second = quants(seed), quants(seed)
    second["model-Q8_0.gguf"] = first["model-Q8_0.gguf"]
    hub.repos["org/repo"] = repo = fake_hub.Repo(first)
    old = repo.commit
    for tag in ("Q8_0", "F16"):
        run("pull", f"org/repo:{tag}")
    repo.update(second)
    for tag in ("Q8_0", "F16"):
        run("pull", f"org/repo:{tag}")
    folder = run.cache / "models--org--repo"
    blobs = lambda: {p.name for p in (folder / "blobs").iterdir()}
    digest = lambda content: hashlib.sha256(content).hexdigest()
    shared, f16_old, f16_new = digest(first["model-Q8_0.gguf"]), digest(first["model-F16.gguf"]), digest(second["model-F16.gguf"])
    assert blobs() == {shared, f16_old, f16_new}
    out = run("rm", "org/repo", "--revision", old, "--yes").stdout
    assert out.startswith("removed org/repo") and blobs() == {shared, f16_new}
    assert [p.name for p in (folder / "snapshots").iterdir()] == [repo.commit] and (folder / "refs/main").exists()
    run("rm", "org/repo:f16", "--yes")
    assert blobs() == {shared}
    assert "has no 'F16'" in run("rm", "org/repo:F16", "--yes", code=1).stderr
    run("rm", "org/repo:Q8_0", "-y")  # the last one
    assert not folder.exists() and not (run.cache / ".locks/models--org--repo").exists()
    assert "is not in" in run("rm", "org/repo", "--yes", code=1).stderr


def test_rm_asks(hub, run, seed):
    hub.repos["org/repo"] = fake_hub.Repo(quants(seed))
    run("pull", "org/repo")
    assert "--yes" in run("rm", "org/repo", code=2).stderr and blob_folder(run).exists()
    for answer, there in (("n", True), ("", True), ("y", False)):
        master, slave = os.openpty()
        process = subprocess.Popen([os.environ["INGOT"], "rm", "org/repo", "--hf-cache", run.cache], stdin=slave, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        os.write(master, f"{answer}\n".encode())
        _, err = process.communicate(timeout=20)
        os.close(master), os.close(slave)
        assert process.returncode == 0 and "Remove org/repo" in err and blob_folder(run).exists() == there


def test_rm_waits_for_no_download(hub, run, seed):
    hub.repos["org/repo"] = fake_hub.Repo(quants(seed))
    run("pull", "org/repo")
    lock = next((run.cache / ".locks/models--org--repo").iterdir())
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "being downloaded" in run("rm", "org/repo", "--yes", code=1).stderr
    run("rm", "org/repo", "--yes")


# --- a terminal ---


def test_progress_bar_on_a_terminal_only(hub, run, seed):
    content = seed.randbytes(600_000)
    hub.repos["org/repo"] = fake_hub.Repo({"m.gguf": content})
    hub.chunk["m.gguf"], hub.pause["m.gguf"] = 20_000, 0.04
    master, slave = os.openpty()
    seen = []

    def read():
        try:
            while data := os.read(master, 4096):
                seen.append(data)
        except OSError:  # the other side is closed
            pass

    reader = threading.Thread(target=read)
    process = subprocess.Popen([os.environ["INGOT"], "pull", "org/repo"], stdout=subprocess.PIPE, stderr=slave, stdin=subprocess.DEVNULL,
                               env={"HOME": str(run.cache.parents[2]), "HF_ENDPOINT": hub.endpoint})
    os.close(slave)
    reader.start()
    out, _ = process.communicate(timeout=60)
    reader.join(20)
    os.close(master)
    bar = b"".join(seen).decode()
    assert process.returncode == 0 and b"m.gguf" in out
    assert "pulling org/repo" in bar and "/s" in bar and "left" in bar and bar.endswith("\r\x1b[K")
