"""scripts/setup.sh on a machine simulated by stubs: the packages that it installs, when it prints nothing, and the
message for users who are not root."""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("INGOT_SOURCE", pathlib.Path(__file__).parents[2]))
PROGRAMS = ["g++", "cmake", "ninja", "pkg-config", "ccache"]  # systemd-analyze, a browser and other shells are missing
LIBRARIES = ["libfmt-dev", "nlohmann-json3-dev", "libcli11-dev", "libpcre2-dev", "libutf8proc-dev", "libedit-dev",
             "libcurl4-openssl-dev", "libssl-dev", "libboost1.81-dev", "libjpeg-dev", "libpng-dev", "libwebp-dev",
             "libgif-dev", "libsndfile1-dev", "libsamplerate0-dev", "ca-certificates"]


def run(*groups, programs=PROGRAMS, libraries=LIBRARIES, root=True, apt=True, apt_status=0, broken="", unknown=(), system="bookworm"):
    """(the finished process, the arguments of each call of apt-get) on a machine that has these programs and packages,
    and whose apt knows all packages except some."""
    with tempfile.TemporaryDirectory() as folder:
        bin = pathlib.Path(folder)
        calls = bin / "calls"
        stubs = {name: "exit 0" for name in programs}
        stubs["id"] = f"echo {0 if root else 1000}"
        known = " ".join(libraries)
        stubs["dpkg-query"] = f'shift 2; for p; do for k in {known}; do [ $p = $k ] && printf "installed:%s " $p; done; done; exit 1'
        if apt:
            fails = f"*install*{broken}*"
            stubs["apt-get"] = f'echo "$@" >> {calls}; case "$*" in {fails}) echo broken; exit {apt_status} ;; esac'
            stubs["apt-cache"] = f'for p in {" ".join(unknown) or "none"}; do [ "$2" = $p ] && exit 100; done; exit 0'
        for name, body in stubs.items():
            (bin / name).write_text(f"#!/bin/sh\n{body}\n")
            (bin / name).chmod(0o755)
        (bin / "os-release").write_text(f"ID=debian\nVERSION_CODENAME={system}\n")
        for name in ("sh", "mktemp", "rm", "cat", "tr", "grep"):
            (bin / name).symlink_to(pathlib.Path("/bin") / name)
        done = subprocess.run([bin / "sh", ROOT / "scripts/setup.sh", *groups], env={"PATH": folder, "TMPDIR": folder, "OS_RELEASE": folder + "/os-release"},
                              capture_output=True, text=True)
        return done, calls.read_text().splitlines() if calls.exists() else []


def packages(call):
    return call.split("--no-install-recommends ")[1].split()


class Setup(unittest.TestCase):
    def test_quiet_when_everything_is_there(self):
        done, calls = run("build")
        self.assertEqual((done.returncode, done.stdout, done.stderr, calls), (0, "", "", []))

    def test_root_installs_exactly_what_is_missing(self):
        done, calls = run("build", programs=["g++", "cmake", "pkg-config", "ccache"], libraries=LIBRARIES[1:])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "setup: installing ninja-build libfmt-dev\n")
        self.assertIn("update", calls[0])
        self.assertEqual(packages(calls[1]), ["ninja-build", "libfmt-dev"])

    def test_a_bare_machine(self):
        done, calls = run("build", "test", programs=[], libraries=[])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(packages(calls[1])), {"g++", "cmake", "ninja-build", "pkg-config", "ccache", *LIBRARIES, "libgtest-dev",
                                                   "libgmock-dev", "python3", "python3-numpy", "python3-pytest", "python3-venv", "libopenmpi-dev", "openmpi-bin", "haproxy", "python3-zmq", "python3-msgpack",
                                                   "systemd", "zsh", "fish", "man-db", "chromium-headless-shell"})

    def test_a_browser_comes_for_tests_where_apt_has_one_and_there_is_none(self):
        wanted = packages(run("build", "test", libraries=LIBRARIES)[1][1])
        self.assertEqual(wanted[-1], "chromium-headless-shell")
        for options in ({"programs": [*PROGRAMS, "chromium"]}, {"unknown": ["chromium-headless-shell"]}):
            done, calls = run("build", "test", **options)
            self.assertEqual((done.returncode, packages(calls[1])), (0, wanted[:-1]))
        self.assertNotIn("chromium-headless-shell", packages(run("build", programs=[])[1][1]))

    def test_a_browser_that_cannot_be_had_is_done_without(self):
        done, calls = run("build", "test", libraries=[], apt_status=100, broken="chromium-headless-shell")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(packages(calls[2]), packages(calls[1])[:-5])  # all other optional packages are left out too

    def test_groups_are_asked_for_by_name(self):
        for group, package in (("test", "libgtest-dev"), ("bench", "libbenchmark-dev"), ("fuzz", "libclang-rt-dev"),
                               ("arm", "g++-aarch64-linux-gnu"), ("windows", "wine")):
            self.assertIn(package, packages(run("build", group)[1][1]))
        self.assertEqual(packages(run("build", "fuzz")[1][1]), ["clang", "llvm", "libclang-rt-dev"])
        done, calls = run("build", "nonsense")
        self.assertEqual((done.returncode, calls), (2, []))

    def test_boost_is_the_newer_one_where_there_are_two(self):
        for system, package in (("bookworm", "libboost1.81-dev"), ("trixie", "libboost-dev"), ("noble", "libboost-dev")):
            wanted = packages(run("build", libraries=[], system=system)[1][1])
            self.assertEqual([p for p in wanted if p.startswith("libboost")], [package])

    def test_ccache_alone_is_not_worth_a_word(self):
        done, calls = run("build", programs=PROGRAMS[:-1])
        self.assertEqual((done.returncode, done.stdout, calls), (0, "", []))

    def test_others_than_root_are_told_the_command(self):
        done, calls = run("build", libraries=LIBRARIES[:-1], root=False)
        self.assertEqual((done.returncode, calls), (1, []))
        self.assertIn("apt-get install --no-install-recommends ca-certificates\n", done.stderr)

    def test_a_failure_shows_what_apt_said(self):
        done, calls = run("build", libraries=[], apt_status=100)
        self.assertEqual(done.returncode, 1)
        self.assertIn("broken", done.stderr)

    def test_without_apt_cmake_has_the_word(self):
        done, calls = run("build", programs=[], libraries=[], apt=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
