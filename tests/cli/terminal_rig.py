"""A pseudo-terminal for tests of interactive use."""
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time

import pytest


class Terminal:
    """A program on its own pseudo-terminal. Tests type text and wait for output. state: the folder of saved
    conversations."""

    def __init__(self, *args, state=None, columns=80, env=None):
        if "INGOT_EMULATED" in os.environ:
            pytest.skip("the terminal of Wine draws its screen anew, so its bytes are not those that the program wrote")
        self.state = state or tempfile.mkdtemp(prefix="ingot-state-")
        self.fd, side = pty.openpty()
        self.resize(columns)
        # Like a login shell, a new session opens the terminal first. So it is the controlling terminal, and Ctrl-C is a
        # signal.
        take = "import os, sys; os.setsid(); os.close(os.open(os.ttyname(0), os.O_RDWR)); os.execv(sys.argv[1], sys.argv[1:])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", take, os.environ["INGOT"], *args],
            stdin=side,
            stdout=side,
            stderr=side,
            env={**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(self.state), **(env or {})},
        )
        os.close(side)
        self.unread = b""

    def resize(self, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))

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
