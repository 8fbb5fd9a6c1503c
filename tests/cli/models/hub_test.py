"""The Hugging Face Hub, with a local server of its protocol (fake_hub.py): which files are downloaded, their places,
access rights, and `ls` and `rm`."""
import fcntl
import hashlib
import importlib.util
import json
import os
import pathlib
import subprocess
import threading
import time

import fake_hub
import pytest
from hub_rig import blob_folder, hub, layout, quants, run, seed  # noqa: F401 (fixtures)


# --- downloads and their places ---


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
    """tools/hub_layout/make.py, and the folder that huggingface_hub made with it."""
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
    """A model in several files, and the projector of its vision tower, which every quantization shares."""
    parts = {f"UD-Q2_K_XL/big-UD-Q2_K_XL-0000{i}-of-00003.gguf": seed.randbytes(2000 + i) for i in (1, 2, 3)}
    hub.repos["org/repo"] = repo = fake_hub.Repo(parts | {"mmproj-BF16.gguf": b"w", "mmproj-F16.gguf": b"x", "imatrix.gguf": b"y"})
    path = pathlib.Path(run("pull", "org/repo:q2_k_xl").stdout.strip())
    assert path.name == "big-UD-Q2_K_XL-00001-of-00003.gguf" and path.parent.name == "UD-Q2_K_XL"
    assert sorted(hub.sent) == sorted([*parts, "mmproj-F16.gguf"])
    assert os.readlink(path).startswith("../../../blobs/")
    for name, content in parts.items():
        assert (run.cache / "models--org--repo/snapshots" / repo.commit / name).read_bytes() == content
    hub.repos["org/other"] = fake_hub.Repo(dict(list(parts.items())[:2]))
    assert "is split into 3 files, but only 2 of them exist" in run("pull", "org/other", code=1).stderr


def test_safetensors_directory_runs(hub, run, models):
    source = models.parent / "hf" / "llama_bf16"
    files = {p.name: p.read_bytes() for p in source.iterdir()}
    junk = {"pytorch_model.bin": b"pickle", "modeling_evil.py": b"import os", "consolidated.safetensors": b"again", "README.md": b"hello"}
    hub.repos["org/repo"] = fake_hub.Repo(files | junk)
    hub.page = 3  # the list of files is sent in pages
    report = json.loads(run("pull", "org/repo", "--json").stdout)
    assert {f["path"] for f in report["files"]} == set(files) and report["label"] == "safetensors"
    assert not set(hub.sent) & set(junk)
    asked = len(hub.requests)
    facts = json.loads(run("inspect", "org/repo", "--json", "--offline").stdout)
    assert facts["name"] == "org/repo" and facts["files"] == 3 and len(hub.requests) == asked
    text = run("run", "-hf", "org/repo", "-p", "the cat", "--raw", "-n", "4", "--temp", "0", "--device", "ref").stdout
    local = run("run", source, "-p", "the cat", "--raw", "-n", "4", "--temp", "0", "--device", "ref").stdout
    assert text == local and text.strip()
    run("convert", "org/repo", run.cache / "whole.gguf", "--offline")
    assert (run.cache / "whole.gguf").read_bytes()[:4] == b"GGUF"


def test_every_command_takes_a_hub_name(hub, run, models, tmp_path):
    hub.repos["org/repo"] = fake_hub.Repo({"m-F16.gguf": (models / "llama_f16.gguf").read_bytes()})
    (tmp_path / "text").write_text("the cat and the hat " * 40)
    ids = run("tokenize", "-hf", "org/repo", "the cat", "--ids").stdout
    assert ids == run("tokenize", models / "llama_f16.gguf", "the cat", "--ids").stdout and hub.sent
    run("inspect", "org/repo:F16")
    run("logits", "hf.co/org/repo", "--tokens", "1,2", "-o", tmp_path / "x.npy", "--device", "ref")
    run("perplexity", "org/repo", "-f", tmp_path / "text", "-c", "32", "--chunks", "1", "--device", "ref")
    run("bench", "-m", "hf://org/repo", "-p", "8", "-n", "0", "-r", "1", "-o", "json")
    run("run", "--hf-repo=org/repo", "-p", "-hf", "--raw", "-n", "1")
    run("quantize", "org/repo", tmp_path / "q.gguf", "Q8_0")
    assert hub.sent["m-F16.gguf"] == (models / "llama_f16.gguf").stat().st_size  # once


def test_a_path_that_exists_wins(hub, run, models, tmp_path):
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "repo").symlink_to(models / "llama.gguf")
    run("inspect", "org/repo", cwd=tmp_path)
    assert hub.requests == []
    assert "No such file" in run("inspect", "org/missing.gguf", code=1).stderr and hub.requests == []
    error = run("inspect", "org/repo", code=1).stderr
    assert "no repository org/repo" in error and "is not a file or directory here" in error


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
    assert "is not a revision" in run("pull", "org/repo", "--revision", "../x", code=1).stderr


# --- access rights ---


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


# --- ls and rm ---


def test_ls(hub, run, seed, models):
    assert run("ls").stdout == "" and run("ls", "--json").stdout == "[]\n"
    files = quants(seed)
    hub.repos |= {"org/repo": fake_hub.Repo(files), "b/dir": fake_hub.Repo({p.name: p.read_bytes() for p in (models.parent / "hf" / "qwen2").iterdir() if p.suffix != ".parts"})}
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
