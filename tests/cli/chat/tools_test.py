"""ingot chat --tools: the demo model calls get_weather and set_light, commands run with the model's arguments, and the
model answers with their results."""
import json
import sys
import time

import pytest
from conftest import DATA, SOURCE
from terminal_rig import Terminal

sys.path.append(str(SOURCE / "tests"))
from copy_model import make_copy_model  # noqa: E402

CASES = {case["name"]: case for case in json.loads((DATA / "demo" / "expected.json").read_text())["chat"]}
WEATHER, LIGHT = CASES["tool call"]["tools"]
ASK, ANSWER = "What is the weather in Oslo?", CASES["tool answer"]["text"]
CALL, RESULT = '[call: get_weather {"city": "Oslo"}]', '{"temperature": -4, "sky": "snowy"}'


def python(code):
    return [sys.executable, "-c", code]


SAYS = python(f"print('{RESULT}', end='')")


@pytest.fixture
def tool_file(tmp_path):
    """tool_file(command, ...) -> the path of a file in which get_weather and set_light run these commands."""

    def make(weather, light=("true",)):
        path = tmp_path / "tools.json"
        path.write_text(json.dumps([WEATHER | {"command": weather}, LIGHT | {"command": list(light)}]))
        return path

    return make


def chat(ingot, path, *args, input=ASK):
    return ingot("chat", "--temp", 0, "--tools", path, *args, input=input + "\n")


def test_a_call_runs_and_the_model_goes_on(ingot, tool_file, tmp_path):
    seen = tmp_path / "seen"
    command = python(
        f"import sys; open('{seen}', 'w').write(repr((sys.argv[1:], sys.stdin.read()))); print('{RESULT}', end='')"
    )
    done = chat(
        ingot, tool_file([*command, "a b", "$HOME; *"]), "--run-tools", input=f"{ASK}\n/save {tmp_path}/talk.json"
    )
    assert done.stdout.startswith(f"{CALL}\n[result: {RESULT}]\n{ANSWER}\n") and done.stderr == ""
    assert eval(seen.read_text()) == (["a b", "$HOME; *"], '{"city": "Oslo"}'), "no shell is between"
    saved = json.loads((tmp_path / "talk.json").read_text())
    assert [m["role"] for m in saved] == ["user", "assistant", "tool", "assistant"]
    call = saved[1]["tool_calls"][0]
    assert (
        call["function"] == {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
        and call["id"] == saved[2]["tool_call_id"]
    )
    assert saved[2]["content"] == RESULT and saved[3]["content"] == ANSWER


def test_a_command_has_no_file_of_the_program(ingot, tool_file):
    code = "import os; print([f for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)])"
    done = chat(ingot, tool_file(python(code)), "--run-tools", "-n", 40)
    assert "[result: ['0', '1', '2']\n]" in done.stdout, done.stdout


def test_piped_calls_do_not_run_by_themselves(ingot, tool_file, tmp_path):
    done = chat(ingot, tool_file(["touch", str(tmp_path / "ran")]), input=f"{ASK}\nWhat is 7 + 5?")
    assert done.stdout == f"{CALL}\n[result: The call was not run.]\n7 + 5 = 12.\n" and not (tmp_path / "ran").exists()


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """A model that writes the text of the last message."""
    path = tmp_path_factory.mktemp("copies") / "copy.gguf"
    make_copy_model(path, marks='<tool_call> "arguments"')
    return path


def call_of(name, arguments="{}"):
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def test_each_of_several_calls(ingot, tool_file, copies):
    """Without a terminal, each call is shown. If calls run, each has its result before the model continues."""
    calls = call_of("set_light") + call_of("get_weather")
    done = ingot("chat", copies, "--temp", 0, "--tools", tool_file(["true"]), input=calls + "\n")
    shown = "[call: {} {{}}]\n[result: The call was not run.]\n"
    assert done.stdout == shown.format("set_light") + shown.format("get_weather")
    done = ingot("chat", copies, "--temp", 0, "--tools", tool_file(SAYS, ["echo", "ok"]), "--run-tools", input=calls + "\n")
    assert done.stdout.startswith("[call: set_light {}]\n[result: ok\n]\n[call: get_weather {}]\n[result: {")


def test_a_call_that_cannot_be_read_is_text(ingot, tool_file, copies, tmp_path):
    call = call_of("get_weather", '{"city": Paris}')
    tools = tool_file(["touch", str(tmp_path / "ran")])
    done = ingot("chat", copies, "--temp", 0, "--tools", tools, "--run-tools", input=call + "\n")
    assert done.stdout == call + "\n" and "cannot be read" in done.stderr and not (tmp_path / "ran").exists()
    done = ingot("chat", copies, "--temp", 0, "--tools", tools, "--run-tools", input=call_of("get_weather", "{'city': 'Oslo',}") + "\n")
    assert done.stdout.startswith('[call: get_weather {"city": "Oslo"}]\n') and (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "command, result",
    [
        (
            python("import sys; sys.stdout.write('half'); sys.stdout.flush(); sys.stderr.write(' bad'); sys.exit(3)"),
            "The command ended with the code 3.\nhalf bad",
        ),
        (python("import os; os.kill(os.getpid(), 9)"), "The command was ended by the signal 9.\n"),
        (
            ["no-such-program-here"],
            "The call failed: cannot start the command 'no-such-program-here': No such file or directory",
        ),
        (python(r"import os; os.write(1, b'\xff\x1b[31mred')"), "\ufffd\\x1b[31mred"),
        (["true"], ""),
    ],
)
def test_what_a_command_does_is_told(ingot, tool_file, command, result):
    done = chat(ingot, tool_file(command), "--run-tools", "-n", 40)
    assert f"[result: {result}]\n" in done.stdout, done.stdout


def test_output_has_a_limit(ingot, tool_file, tmp_path):
    done = chat(
        ingot,
        tool_file(python("import sys; sys.stdout.write('word ' * 60000)")),
        "--run-tools",
        "-c",
        512,
        input=f"{ASK}\nWhat is 7 + 5?",
    )
    assert (
        "[result: word word" in done.stdout and "512" in done.stderr and "/reset" in done.stderr
    ), "it is longer than the context"
    assert done.stdout.endswith("7 + 5 = 12.\n")


def test_time_has_a_limit(ingot, tool_file, tmp_path):
    """The command's children are ended too."""
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 600 & echo $! > {pid}; echo begun; wait"]
    done = chat(ingot, tool_file(command), "--run-tools", "--tool-timeout", 5)
    assert "[result: The command was stopped after 5 seconds.\nbegun\n]" in done.stdout
    wait_until(lambda: not is_running(int(pid.read_text())))  # the process that inherits the child must reap it


def wait_until(is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_user_is_asked(tool_file):
    talk = Terminal("chat", "--temp", "0", "--tools", str(tool_file(SAYS)))
    for answer, runs in ((b"\r", False), (b"n\r", False), (b"y\r", True), (b"always\r", True)):
        talk.wait_for(b"> ")
        talk.type(ASK.encode() + b"\r")
        talk.wait_for(b"Run get_weather? [y/N/always] ")
        talk.type(answer)
        talk.wait_for(b"[result: " + (RESULT.encode() if runs else b"The user did not allow the call."))
        if not runs:
            talk.wait_for(b"\n\r\n")  # any answer of the model
            talk.wait_for(b"> ")
            talk.type(b"/reset\r")
            talk.wait_for(b"afresh")
        else:
            talk.wait_for(ANSWER.encode())
    talk.wait_for(b"> ")
    talk.type(b"/reset\r")
    talk.wait_for(b"afresh")
    talk.type(ASK.encode() + b"\r")
    talk.wait_for(ANSWER.encode())  # the user said always, so there is no question
    talk.leave()


def test_ctrl_c_ends_the_command(tool_file, tmp_path):
    begun = tmp_path / "begun"
    talk = Terminal(
        "chat",
        "--temp",
        "0",
        "--run-tools",
        "--tools",
        str(tool_file(python(f"import time; open('{begun}', 'w').close(); time.sleep(600)"))),
    )
    talk.wait_for(b"> ")
    talk.type(ASK.encode() + b"\r")
    wait_until(begun.exists)
    talk.type(b"\x03")
    talk.wait_for(b"[result: The user stopped the command.")
    talk.wait_for(b"> ")
    talk.type(b"What is 7 + 5?\r")
    talk.wait_for(b"= 12.")
    talk.leave()


GOOD = WEATHER | {"command": ["true"]}


@pytest.mark.parametrize(
    "text, word",
    [
        ("", "line 1, column 1"),
        ('[{"type": "function",\n}]', "line 2, column 1"),
        ("[" * 100_000, "deep"),
        ("{}", "must be a JSON array of 1 to 128 tools"),
        ("[]", "must be a JSON array"),
        ([GOOD] * 129, "must be a JSON array"),
        ([7], "[0] must be an object"),
        ([GOOD, {}], "[1] has no 'function'"),
        ([WEATHER], "[0].command must be an array of strings"),
        ([WEATHER | {"command": "ls -l"}], "without a shell"),
        ([WEATHER | {"command": []}], "[0].command"),
        ([WEATHER | {"command": ["ls", 7]}], "[0].command"),
        ([WEATHER | {"command": [""]}], "must begin with the name of a program"),
        ([WEATHER | {"command": ["a\0b"]}], "zero bytes"),
        ([GOOD | {"type": "web_search"}], "[0].type must be"),
        ([GOOD | {"timeout": 3}], "[0] has the unknown field 'timeout'"),
        ([GOOD, GOOD], "'get_weather' is already the name of another tool"),
        ([GOOD | {"function": {"name": "a b"}}], "[0].function.name must be"),
        ([GOOD | {"function": {"name": "a", "parameters": []}}], "[0].function.parameters"),
        ([GOOD | {"function": {"name": "a", "description": 7}}], "[0].function.description must be a string"),
    ],
)
def test_bad_files(ingot, tmp_path, text, word):
    path = tmp_path / "tools.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    done = ingot("chat", "--tools", path, input=ASK, ok=False)
    assert (
        done.returncode == 1 and word in done.stderr and str(path) in done.stderr and done.stderr.count("\n") == 1
    ), done.stderr


def test_flags_that_need_the_file(ingot, tmp_path):
    done = ingot("chat", "--run-tools", ok=False)
    assert done.returncode == 2 and "--run-tools needs --tools FILE" in done.stderr
    assert ingot("chat", "--tools", tmp_path / "none.json", ok=False).returncode == 2


def test_a_model_that_calls_for_ever_is_stopped(ingot, tool_file, copies):
    call = call_of("get_weather")
    flags = ["chat", copies, "--temp", 0, "--run-tools", "--tools"]
    done = ingot(*flags, tool_file(["echo", "-n", call]), "-c", 32768, input=call + "\n")
    assert done.stdout.count(f"[call: get_weather {{}}]\n[result: {call}]\n") == 50, done.stdout
    assert "called tools 50 times in this turn" in done.stderr
    done = ingot(*flags, tool_file(["true"]), input=call_of("no_such_tool") + "\n")
    assert "[result: There is no tool 'no_such_tool'.]" in done.stdout
