"""A pseudo-terminal for the tests of what a person does with the program."""
import os
import pty
import select
import subprocess
import sys
import tempfile
import time

import pytest


class Terminal:
    """A program on a pseudo-terminal of its own: type into it, wait for what it shows. state: the folder that keeps talks."""

    def __init__(self, *args, state=None):
        if "INGOT_EMULATED" in os.environ:
            pytest.skip("the terminal of Wine draws its screen anew, so its bytes are not those that the program wrote")
        self.state = state or tempfile.mkdtemp(prefix="ingot-state-")
        self.fd, side = pty.openpty()
        # The login shell's way to a controlling terminal, so that Ctrl-C is a signal: a new session opens it first.
        take = "import os, sys; os.setsid(); os.close(os.open(os.ttyname(0), os.O_RDWR)); os.execv(sys.argv[1], sys.argv[1:])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", take, os.environ["INGOT"], *args],
            stdin=side,
            stdout=side,
            stderr=side,
            env={**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(self.state)},
        )
        os.close(side)
        self.unread = b""

    def type(self, keys):
        os.write(self.fd, keys)

    def wait_for(self, what, seconds=60):
        end = time.time() + seconds
        while what not in self.unread and time.time() < end:
            if select.select([self.fd], [], [], 0.2)[0]:
                self.unread += os.read(self.fd, 4096)
        before, found, self.unread = self.unread.partition(what)
        assert found, before

    def leave(self):
        self.type(b"/quit\r")
        self.wait_for(b"/quit")
        self.ended()

    def ended(self):
        assert self.process.wait(timeout=60) == 0
        os.close(self.fd)
