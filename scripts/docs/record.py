#!/usr/bin/env python3
"""Records a terminal in which real commands run, as the animated picture of the README: scripts/docs/record.py PROGRAM docs/terminal.svg.

A shell runs on a pseudo terminal. This script types the commands below and records every change of the screen with its
time. Needs pyte (`pip install pyte`), which emulates the terminal.
"""
import fcntl
import html
import os
import pathlib
import pty
import select
import struct
import sys
import termios
import time

import pyte

COLUMNS, ROWS, CHAR, LINE, PAD = 112, 25, 8.0, 18, 14
KEY_S, PAUSE_S, END_S = 0.045, 1.2, 6.0
COMMANDS = ['ingot run -p "Tell me a story about a fox." --seed 3',
            "ingot run -p \"My name is Clara and I am 30.\" --json-schema '{\"required\": [\"name\", \"age\"]}' --seed 1"]
STYLE = ("text { font: 13.3px ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #e6edf3; white-space: pre } "
         ".bar { fill: #161b22 } .back { fill: #0d1117 }")


class Recording:
    def __init__(self, program):
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self.stream = pyte.ByteStream(self.screen)
        self.lines = [[(0.0, "")] for _ in range(ROWS)]  # for each row: (start time, text)
        pid, self.terminal = pty.fork()
        if pid == 0:
            path = f"{pathlib.Path(program).resolve().parent}:{os.environ['PATH']}"
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], {"PATH": path, "PS1": "$ ", "TERM": "xterm", "HOME": os.environ["HOME"], "LANG": "C.UTF-8"})
        os.set_blocking(self.terminal, False)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.read(0.5)
        self.begin = time.monotonic()
        self.keep()

    def keep(self):
        now = time.monotonic() - self.begin
        for row, text in enumerate(self.screen.display):
            if text.rstrip() != self.lines[row][-1][1]:
                self.lines[row].append((now, text.rstrip()))

    def read(self, seconds, until=None):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (until and until()):
            if select.select([self.terminal], [], [], 0.02)[0]:
                self.stream.feed(os.read(self.terminal, 65536))
                if hasattr(self, "begin"):
                    self.keep()

    def is_ready(self):
        return self.screen.display[self.screen.cursor.y].rstrip() == "$" and self.screen.cursor.x == 2

    def run(self, command):
        for key in command:
            os.write(self.terminal, key.encode())
            self.read(KEY_S)
        os.write(self.terminal, b"\n")
        self.read(0.2)
        self.read(120, self.is_ready)
        self.read(PAUSE_S)


def svg(lines, seconds):
    width, height = COLUMNS * CHAR + 2 * PAD, ROWS * LINE + 2 * PAD + 26
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}" role="img">',
           "<title>ingot in a terminal: a story, and an answer that follows a JSON Schema</title>", f"<style>{STYLE}</style>",
           f'<rect class="back" width="100%" height="100%" rx="8"/><rect class="bar" width="100%" height="26" rx="8"/>']
    out += [f'<circle cx="{18 + 18 * i}" cy="13" r="5" fill="{color}"/>' for i, color in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))]
    for row, versions in enumerate(lines):
        y = 26 + PAD + (row + 0.75) * LINE
        for (begin, text), (end, _) in zip(versions, versions[1:] + [(seconds, "")]):
            if not text:
                continue
            a, b = begin / seconds, end / seconds
            last = end == seconds  # also shown without animation
            times, values = (f"0;{a:.4f}", "0;1") if last else (f"0;{a:.4f};{b:.4f}", "0;1;0")
            out.append(f'<text x="{PAD}" y="{y:.1f}" opacity="{int(last)}">{html.escape(text)}<animate attributeName="opacity" calcMode="discrete" '
                       f'dur="{seconds:.1f}s" repeatCount="indefinite" keyTimes="{times}" values="{values}"/></text>')
    return "\n".join(out) + "\n</svg>\n"


def main(program, target):
    recording = Recording(program)
    for command in COMMANDS:
        recording.run(command)
    text = svg(recording.lines, time.monotonic() - recording.begin + END_S)
    pathlib.Path(target).write_text(text)
    print(f"{target}: {len(text):,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
