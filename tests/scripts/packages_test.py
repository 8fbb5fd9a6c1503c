"""scripts/packages: archives with the same bytes each time, the list of linked libraries, the tarball of this build, and
the forms of the files in deploy/."""

import hashlib
import importlib.util
import os
import pathlib
import random
import re
import subprocess
import tarfile

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
PROGRAM = os.environ.get("INGOT", "")
SEED = int(os.environ.get("INGOT_TEST_SEED", random.SystemRandom().randrange(1 << 32)))

spec = importlib.util.spec_from_file_location("sbom", SOURCE / "scripts" / "packages" / "sbom.py")
sbom = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sbom)


def archive(folder, file, **env):
    subprocess.run(
        [SOURCE / "scripts" / "packages" / "archive.sh", folder, file], check=True, env={**os.environ, **env}
    )
    return file.read_bytes()


def test_every_time_in_a_package_is_that_of_the_commit(tmp_path):
    """Files that are older than the commit too, and folders and links: rpmbuild would keep their times."""
    draw = random.Random(SEED)
    print("seed", SEED)
    epoch = 1_700_000_000
    for _ in range(20):
        folder = tmp_path / f"{draw.randrange(4)}" / f"{draw.randrange(4)}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{draw.randrange(1 << 30):x}").write_bytes(b"x")
    (tmp_path / "link").symlink_to("nowhere")
    for path in tmp_path.rglob("*"):
        os.utime(path, (epoch + draw.randrange(-(10**8), 10**8),) * 2, follow_symlinks=False)
    script = SOURCE / "cmake" / "package_times.cmake"
    subprocess.run(
        ["cmake", f"-DCPACK_TEMPORARY_DIRECTORY={tmp_path}", "-P", script],
        check=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
    )
    assert {path.lstat().st_mtime for path in tmp_path.rglob("*")} == {epoch}
    assert "set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_times.cmake)" in (
        SOURCE / "cmake" / "package.cmake"
    ).read_text()


def test_an_archive_depends_on_content_only(tmp_path):
    draw = random.Random(SEED)
    print("seed", SEED)
    files = {
        f"{draw.randrange(3)}/{draw.randrange(1 << 30):x}": draw.randbytes(draw.randrange(5000)) for _ in range(20)
    }
    made = []
    for place in ("first", "second"):
        folder = tmp_path / place / "ingot-1.2.3"
        for name in draw.sample(sorted(files), len(files)):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(files[name])
            file.chmod(draw.choice([0o600, 0o644, 0o664]))
            os.utime(file, (draw.randrange(1 << 30),) * 2)
        made.append(
            archive(
                folder,
                tmp_path / f"{place}.tar.gz",
                SOURCE_DATE_EPOCH="1000000000",
                TZ=draw.choice(["UTC", "Asia/Tokyo"]),
            )
        )
    assert made[0] == made[1]
    with tarfile.open(tmp_path / "first.tar.gz") as packed:
        assert {m.name: packed.extractfile(m).read() for m in packed if m.isfile()} == {
            f"ingot-1.2.3/{k}": v for k, v in files.items()
        }
        assert {(m.mtime, m.uid, m.gid, m.mode) for m in packed if m.isfile()} == {(1000000000, 0, 0, 0o644)}
    assert (
        archive(tmp_path / "first" / "ingot-1.2.3", tmp_path / "later.tar.gz", SOURCE_DATE_EPOCH="1000000001")
        != made[0]
    )


@pytest.mark.skipif(not PROGRAM, reason="no program in this build")
def test_the_tarball_of_this_build_runs_elsewhere(tmp_path):
    folder = tmp_path / "made" / "ingot"
    build = pathlib.Path(PROGRAM).parent
    subprocess.run(["cmake", "--install", build, "--prefix", folder, "--strip"], check=True, stdout=subprocess.DEVNULL)
    archive(folder, tmp_path / "ingot.tar.gz", SOURCE_DATE_EPOCH="1000000000")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(["tar", "-C", elsewhere, "-xzf", tmp_path / "ingot.tar.gz"], check=True)
    said = subprocess.run(
        [elsewhere / "ingot" / "bin" / "ingot", "run", "-p", "hi", "-n", "5"],
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert said.stdout.strip()


def test_the_list_of_libraries_is_whole():
    document = sbom.document("1.2.3", 1000000000, version_of=lambda package: "1-2")
    assert document == sbom.document("1.2.3", 1000000000, version_of=lambda package: "1-2")
    assert (
        document["documentNamespace"]
        != sbom.document("1.2.3", 1000000000, version_of=lambda package: "1-3")["documentNamespace"]
    )
    assert document["spdxVersion"] == "SPDX-2.3" and document["creationInfo"]["created"] == "2001-09-09T01:46:40Z"
    ids = [package["SPDXID"] for package in document["packages"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one) for one in ids)
    ends = {end for r in document["relationships"] for end in (r["spdxElementId"], r["relatedSpdxElement"])}
    assert ends == {*ids, "SPDXRef-DOCUMENT"}
    assert all(p["versionInfo"] and p["licenseDeclared"] for p in document["packages"])


def test_the_list_names_what_cmake_links():
    linked = re.search(
        r"set\(INGOT_LINKED_PACKAGES ([^)]*)\)", (SOURCE / "cmake" / "linked_libraries.cmake").read_text()
    )[1].split()
    assert {package for package, (_, _, how) in sbom.LINKED.items() if how == "STATIC_LINK"} == set(linked)
    assert "libssl-dev" in sbom.LINKED


def test_uninstalling_needs_the_list(tmp_path):
    done = subprocess.run(
        [SOURCE / "scripts" / "uninstall.sh", tmp_path / "absent.txt"], capture_output=True, text=True
    )
    assert done.returncode == 1 and "absent.txt is missing" in done.stderr


def test_the_manifests_have_the_packages_hashes(tmp_path):
    draw = random.Random(SEED)
    version = f"{draw.randrange(9)}.{draw.randrange(99)}.{draw.randrange(99)}"
    script = SOURCE / "scripts" / "packages" / "manifests.py"
    subprocess.run(["python3", "-B", script, tmp_path, version], check=True)
    assert not list(tmp_path.iterdir()), "no package, no manifest"
    packages = {
        f"ingot-{version}-linux-x86_64.tar.gz": "ingot.rb",
        f"ingot-{version}-windows-x86_64-setup.exe": "ingot.winget.yaml",
    }
    for package in packages:
        (tmp_path / package).write_bytes(draw.randbytes(1000))
    subprocess.run(["python3", "-B", script, tmp_path, version, "https://ingot.test/files"], check=True)
    for package, manifest in packages.items():
        text = (tmp_path / manifest).read_text()
        assert hashlib.sha256((tmp_path / package).read_bytes()).hexdigest() in text
        assert f"https://ingot.test/files/{package}" in text and not re.search(r"@[A-Z0-9_]+@", text)
        assert "not published" in text
    formula = (tmp_path / "ingot.rb").read_text()
    assert len(re.findall(r"^\s*(?:class|def|test do)\b", formula, re.M)) == len(re.findall(r"^\s*end$", formula, re.M))


def test_the_workflow_calls_what_there_is():
    text = (SOURCE / ".github" / "workflows" / "packages.yml").read_text()
    targets = re.findall(r"make (\w[\w-]*)(?= |$)", text.replace("make git", ""), re.M)
    assert set(targets) == {"packages"} and re.search(r"^packages:", (SOURCE / "Makefile").read_text(), re.M)


def test_every_package_of_a_group_is_known():
    """make.sh's kinds are functions of the script; another is refused by the shell before anything is built."""
    text = (SOURCE / "scripts" / "packages" / "make.sh").read_text()
    default = re.search(r"\|\| set -- (.*)", text)[1].split()
    assert default == ["linux", "wheel", "windows"] and all(
        re.search(rf"^make_{kind}\(\)", text, re.M) for kind in default
    )
