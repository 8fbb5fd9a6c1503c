"""Everything fits the columns of the terminal: answers end their lines between words, bars and states are one line, and
the help is wrapped."""
import os
import pty
import random
import re
import select
import subprocess
import threading
import unicodedata

import pytest
from conftest import SOURCE
from fake_hub import FakeHub, Repo
from terminal_rig import Terminal

WIDTHS = (20, 40, 80, 200)
SEED = int(os.environ.get("INGOT_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
LETTERS = {
    "latin": "abcdefghijklmnopqrstuvwxyz",
    "greek": "αβγδεζηθικλμνξοπρστυφχψω",
    "cyrillic": "абвгдежзиклмнопрстуфхц",
}
WIDE = "狐狸跳過懶狗ひらがなカタカナ한국어語、。"


def columns_of(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def drawn_text(draw):
    def word():
        if draw.random() < 0.25:
            return "".join(draw.choice(WIDE) for _ in range(draw.randint(1, 12)))
        letters = draw.choice(list(LETTERS.values()))
        made = "".join(draw.choice(letters) for _ in range(draw.choice([1, 2, 3, 5, 8, 12, 30])))
        return made + draw.choice(["", "", ",", "\u0301" if letters == LETTERS["latin"] else "."])

    lines = [" ".join(word() for _ in range(draw.randint(1, 20))) for _ in range(draw.randint(1, 3))]
    return "\n".join(lines)


def in_lines(text, width):
    """The text as the terminal should get it: each line takes as many words as fit; a wide character is a word."""
    lines = []
    for paragraph in text.split("\n"):
        column, line = 0, ""
        for spaces, atom in re.findall(rf"( *)([{WIDE}]|[^ {WIDE}]+)", paragraph):
            n = columns_of(atom)
            if column > 0 and column + len(spaces) + n > width:
                lines.append(line)
                line, column = atom, n
            else:
                line, column = line + spaces + atom, column + len(spaces) + n
            while column > width:  # the terminal itself breaks a long word
                column -= width
        lines.append(line)
    return "\n".join(lines)


def on_terminal(args, columns, stream="stdout", code=0):
    """What the program writes to one stream that is a terminal, as bytes."""
    terminal, side = pty.openpty()
    Terminal.resize(type("size", (), {"fd": terminal}), columns)
    other = {"stdout": {"stderr": subprocess.PIPE}, "stderr": {"stdout": subprocess.PIPE}}[stream]
    env = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(
        [os.environ["INGOT"], *map(str, args)], stdin=subprocess.DEVNULL, **{stream: side}, **other, env=env
    )
    os.close(side)
    drain = threading.Thread(target=process.communicate, daemon=True)
    drain.start()
    said = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the program has closed the terminal
            break
        if not piece:
            break
        said += piece
    drain.join(60)
    os.close(terminal)
    assert process.wait(60) == code
    return said.decode().replace("\r\n", "\n")


@pytest.mark.skipif("INGOT_EMULATED" in os.environ, reason="Wine has no such terminal")
class TestAnswers:
    @pytest.mark.parametrize("width", WIDTHS)
    def test_lines_end_between_words(self, width):
        print("seed", SEED)
        draw = random.Random(SEED + width)
        for _ in range(4):
            text = drawn_text(draw)
            regex = re.sub(r"([.*+?^${}()|\[\]\\])", r"\\\1", text)
            said = on_terminal(["run", "-p", "x", "--regex", regex, "-t", 1], width)
            assert said == in_lines(text, width) + "\n"

    def test_code_stays_as_it_is(self):
        code = "Look at this long sentence first:\n```c\nint main(void) { return puts(greeting); }\n```\nand then this"
        regex = re.sub(r"([.*+?^${}()|\[\]\\])", r"\\\1", code)
        said = on_terminal(["run", "-p", "x", "--regex", regex], 20)
        assert said == ("Look at this long\nsentence first:\n```c\nint main(void) { return puts(greeting); }\n```\n"
                        "and then this\n")

    def test_without_a_terminal_no_line_is_broken(self, ingot):
        draw = random.Random(SEED)
        text = drawn_text(draw)
        regex = re.sub(r"([.*+?^${}()|\[\]\\])", r"\\\1", text)
        assert ingot("run", "-p", "x", "--regex", regex).stdout == text + "\n"

    def test_a_resized_terminal_gets_other_lines(self):
        words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
        chat = Terminal("chat", "--regex", words, columns=30)
        for width in (30, 50, 20):
            chat.resize(width)
            chat.wait_for(b"> ")
            chat.type(b"x\r")
            chat.wait_for(b"x\r\n")
            chat.wait_for(in_lines(words, width).replace("\n", "\r\n").encode())
        chat.wait_for(b"> ")
        chat.leave()


def frames(said):
    """The texts that were shown in turn on one line."""
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame) for frame in said.split("\r")]


@pytest.mark.skipif("INGOT_EMULATED" in os.environ, reason="Wine has no such terminal")
@pytest.mark.parametrize("width", WIDTHS)
def test_a_progress_bar_is_one_line(width, tmp_path, monkeypatch):
    """A download that goes on until the bar was drawn five times, the last times on a smaller terminal."""
    hub = FakeHub()
    name = "somebody/a-repository-with-a-rather-long-name-GGUF"
    model = (SOURCE / "models" / "demo.gguf").read_bytes()
    hub.repos[name] = Repo({"model.gguf": model})
    hub.chunk["model.gguf"], hub.pause["model.gguf"] = 1 << 14, 0.02
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    terminal = Terminal("pull", name, columns=width)
    said, resized = b"", False
    while said.count(b"%") < 5:
        assert select.select([terminal.fd], [], [], 60)[0]
        said += os.read(terminal.fd, 65536)
        if said.count(b"%") >= 3 and not resized:
            terminal.resize(max(15, width // 2))
            mark, resized = len(said), True
    hub.pause["model.gguf"] = 0
    try:
        while piece := os.read(terminal.fd, 65536):
            said += piece
    except OSError:
        pass
    assert terminal.process.wait(60) == 0
    hub.close()
    for part, most in ((said[:mark], width), (said[mark:], width)):
        bars = [frame for frame in frames(part.decode()) if "%" in frame]
        assert bars and all(columns_of(bar) < most and "\n" not in bar for bar in bars), bars
    after = [frame for frame in frames(said[mark:].decode()) if "%" in frame][1:]  # one may have been on its way
    assert all(columns_of(bar) < max(15, width // 2) for bar in after), after
    if width == 200:
        whole = r"pulling somebody/\S+ \[#*\.*\] +\d+%  \d+ s left  [\d.]+ [KM]iB of [\d.]+ MiB  \S+ [KM]iB/s"
        assert re.search(whole, said.decode())


@pytest.mark.skipif("INGOT_EMULATED" in os.environ, reason="Wine has no such terminal")
@pytest.mark.parametrize("width", (5, 20, 80))
def test_states_of_measurements_are_one_line(width):
    said = on_terminal(["bench", "-p", "8,9", "-n", "2", "-r", "2", "-t", "1"], width, "stderr")
    shown = [frame for frame in frames(said) if frame.strip()]
    assert shown and all(columns_of(frame) < width and "\n" not in frame for frame in shown), shown


def words_cut(text, width):
    """The words that the terminal breaks, although a line has room for them."""
    cut = []
    for line in re.split(r"[\r\n]+", text):
        for word in re.finditer(r"\S+", line):
            begin, n = columns_of(line[: word.start()]), columns_of(word[0])
            if n <= width and begin // width != (begin + n - 1) // width:
                cut.append(word[0])
    return cut


@pytest.mark.skipif("INGOT_EMULATED" in os.environ, reason="Wine has no such terminal")
class TestMessages:
    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("args, code", [
        (["run", "-p", "x", "--lora", "a.gguf"], 2),
        (["run", "-p", "x", "--device", "abacus"], 2),
        (["chat", "/no/such/folder/model.gguf"], 1),
        (["run", "-p", "What is 7 + 5?", "--temp", "0", "--log-level", "debug", "-t", "1"], 0),
    ])
    def test_errors_logs_and_figures(self, width, args, code):
        """Standard error: no word is cut, and without its line breaks it is what a pipe gets."""
        said = on_terminal(args, width, "stderr", code)
        plain = re.sub(r"\x1b\[[0-9]*m", "", said)
        assert not words_cut(plain, width), said
        if code:
            program = [os.environ["INGOT"], *args]
            done = subprocess.run(program, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            assert plain.split() == done.stderr.split() and done.stderr.count("\n") == 1

    @pytest.mark.parametrize("width", WIDTHS)
    def test_the_menu_and_the_commands_of_a_chat(self, width):
        for args, ready, typed in (([], b"1> ", b"q\r"), (["chat"], b"> ", b"/help\r")):
            terminal = Terminal(*args, columns=width)
            said = b""
            while ready not in said:
                assert select.select([terminal.fd], [], [], 60)[0]
                said += os.read(terminal.fd, 65536)
            if args:
                mark = len(said)
                terminal.type(typed)
                while not said[mark:].endswith(ready) or b"line" not in said[mark:]:
                    assert select.select([terminal.fd], [], [], 60)[0]
                    said += os.read(terminal.fd, 65536)
                terminal.leave()
            else:
                terminal.type(typed)
                terminal.ended()
            plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())
            assert not words_cut(plain, width), said


def commands():
    text = (SOURCE / "docs" / "cli.md").read_text()
    return ["", *re.findall(r"^## ingot (.*)$", text, re.M)]


@pytest.mark.parametrize("command", commands())
def test_the_help_fits_a_screen(command, ingot):
    """--help: 25 lines of 80 columns. What it leaves out is in --help-all."""
    short, every = (ingot(*command.split(), flag).stdout for flag in ("--help", "--help-all"))
    lines = short.splitlines()
    assert len(lines) <= 25 and max(map(columns_of, lines)) <= 80, short
    known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", every))
    assert set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", short, re.M)) <= known
    if len(every.splitlines()) > 25 and command:
        assert f"ingot {command} --help-all" in lines[-1] and re.search(r"All \d+ options", lines[-1])


@pytest.mark.skipif("INGOT_EMULATED" in os.environ, reason="Wine has no such terminal")
@pytest.mark.parametrize("width", WIDTHS)
def test_the_help_is_wrapped(width, ingot):
    for command in ("run", "serve", "bench engine", ""):
        for flag in ("--help", "--help-all"):
            said = on_terminal([*command.split(), flag], width)
            wide = [line for line in said.splitlines() if columns_of(line) > width]
            assert not [line for line in wide if len(line.split()) > 1 and width > 20], wide  # a long name stays whole
            plain = ingot(*command.split(), flag).stdout
            if flag == "--help-all":
                assert "".join(said.split()) == "".join(plain.split()), "no word is lost"
