"""Makes docs/troubleshooting.md: the most common problems, from troubleshooting.in.md, and every error message of src/,
by topic.

A message is found where the source throws it. Each source file belongs to the first topic below that names it.
"""
import re
import textwrap

WIDTH = 120
CALLS = re.compile(r"(?:throw\s+(?:[\w:]*Error|json_error)|(?:\b|[.>])(?:refuse|fail|bad|report))\s*\(")
LITERAL = re.compile(r'"((?:\\.|[^"\\])*)"')

# The files of the messages, the topic, and advice that goes beyond the messages.
TOPICS = [
    ("The command line", ("src/cli/",), "Exit code 2 means that the command line is wrong, 1 that the work failed. `ingot COMMAND --help-all` has every flag."),
    ("Downloads", ("src/io/hub/",), "A download that was cut goes on when the command is given again. Private and gated repositories need HF_TOKEN; behind "
     "a proxy with its own certificates, SSL_CERT_FILE names them; `--offline` uses what is there."),
    ("GGUF files", ("src/io/gguf/",), "The file is damaged, unfinished or made by a converter with a fault: compare its hash with the publisher's, download it again "
     "(`ingot pull` checks hashes), or take another quantization. `ingot inspect FILE` shows what can be read."),
    ("Model directories", ("src/io/huggingface/",), "The directory must have config.json, tokenizer.json, and all safetensors files that the "
     "index names: download it again with `ingot pull`. If the checkpoint's quantization is not known, take a GGUF file of the model."),
    ("Speech", ("src/model/speech/", "src/io/audio/"), "[speech.md](speech.md) has the models and the formats of recordings. `ffmpeg -i FILE audio.flac` converts others."),
    ("JSON, files and metadata", ("src/io/",), "The message names the file and the place in it."),
    ("Tokenizers", ("src/text/tokenizers/",), "The tokenizer's data do not fit together: take the model's original files, or report the model."),
    ("Chat templates", ("src/text/jinja/", "src/text/chat"), "Templates are programs that come with models. `ingot template MODEL` tries one; `--chat-template-file FILE` "
     "uses another, and `--chat-template chatml` a plain one. A template may refuse messages on purpose, such as two of the same role in a row."),
    ("Schemas, regular expressions and grammars", ("src/text/grammar/",), "[grammar.md](grammar.md) says what is enforced. `ingot grammar check` tries a schema without a model; "
     "`--lenient-schema` (or \"strict\": false in a request) leaves out what cannot be enforced."),
    ("Text", ("src/text/",), "The message says which value is wrong."),
    ("Images and recordings in prompts", ("src/model/vision/", "src/model/ears/", "src/model/media/"), "[images.md](images.md) and [speech.md](speech.md) have the families whose towers run. The tower must belong to the text model, and the processor's "
     "numbers to the tower: take all files from one repository."),
    ("Architectures and weights", ("src/model/", "src/quant/"), "[models.md](models.md) has the models that run. A tensor that is missing or has another shape means that the file is "
     "not of the architecture that it names, or of a newer variant of it: report the model's name."),
    ("Requests", ("src/engine/",), "A longer context is `--ctx-size` (`n_ctx` in C and Python); `ingot inspect MODEL --fit` says what fits in memory."),
    ("Devices and memory", ("src/backend/", "src/base/"), "`nvidia-smi` shows the driver and free memory. With less memory: a smaller quantization, a smaller `--ctx-size`, "
     "`--kv-type fp8` or q8_0. After a fault of the GPU the program has to be started again (exit code 71)."),
    ("The C API and Python", ("src/capi/",), "The message is in `ingot_last_error()`, in Python the exception's text."),
    ("The server", ("src/server/",), "Clients get the message in the body of the answer, with status 400 for a request that can never run, 429 where the queue is full and 503 while "
     "the server cannot work. [server.md](server.md) describes the fields."),
]


def string_arguments(text, start):
    """The string literals of a call whose parenthesis opens before `start`: adjacent ones joined, one for each argument or choice (?:)."""
    depth, i, arguments = 1, start, [""]
    while depth > 0 and i < len(text):
        if literal := LITERAL.match(text, i):
            arguments[-1] += literal[1]
            i = literal.end()
            continue
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(text[i], 0)
        if text[i] in ",?:;" or text[i] in "(" and arguments[-1]:
            arguments.append("")
        i += 1
    return arguments


def messages_of(text):
    code = re.sub(r'("(?:\\.|[^"\\\n])*"|\'"\')|//[^\n]*', lambda found: "' '" if found[1] == "'\"'" else found[1] or "", text)
    for call in CALLS.finditer(code):
        for argument in string_arguments(code, call.end()):
            if len(re.findall(r"[A-Za-z]{2,}", argument)) >= 3 and not argument.startswith(","):
                yield shown(argument)


def shown(literal):
    """A format string in readable form."""
    text = literal.replace("{{", "\x01").replace("}}", "\x02")
    text = re.sub(r"\{[^{}]*\}", "…", text).replace("\x01", "{").replace("\x02", "}")
    return text.replace("\\n", " ").replace('\\"', '"').replace("\\\\", "\\")


def topic_of(name):
    return next(title for title, prefixes, _ in TOPICS if name.startswith(prefixes))


def read_messages(root):
    found = {title: set() for title, _, _ in TOPICS}
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in {".cc", ".h", ".cu", ".cuh"}:
            name = path.relative_to(root).as_posix()
            messages = list(messages_of(path.read_text()))
            if messages:
                found[topic_of(name)].update(messages)
    return found


def markdown(root):
    out = [(root / "scripts" / "docs" / "troubleshooting.in.md").read_text().rstrip("\n"), "", "## Every message", ""]
    out += textwrap.wrap("Made from the source by `make docs`. … stands for what is different each time. A message says what is wrong, where, and after a colon "
                         "mostly what to do; what helps beyond that is at each topic's start.", WIDTH)
    found = read_messages(root)
    for title, _, advice in TOPICS:
        out += ["", f"### {title}", "", *textwrap.wrap(advice, WIDTH, break_on_hyphens=False), ""]
        for message in sorted(found[title], key=lambda m: (m.lstrip("…: '\"").lower(), m)):
            out += textwrap.wrap(f"- {escaped(message)}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(out) + "\n"


def escaped(text):
    return re.sub(r"([<>*`\[\]])", r"\\\1", text)
