"""Makes the command line reference, docs/cli.md, and the man page, share/man/man1/ingot.1, from the data of
program_help.py."""
import re
import textwrap

WIDTH = 120
SHARED = "Hugging Face Hub"  # many commands share these options, so they are listed once, at the end
ENDINGS = """## Exit codes

0: done. 1: failed, with a line on standard error. 2: the command line is wrong. 71: the GPU failed for good. 74: a
model file became shorter while it was in use. 130: interrupted.

"""
LLAMA = ("Common flags of llama.cpp are understood, too: they become flags of ingot, or change nothing, which a note says. "
         "`--name=value` and `--name value` are the same. `--help` shows the common options of a command, `--help-all` every "
         "one.")


def wrapped(text, first="", rest=""):
    return "\n".join(textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False))


def escaped(text):
    return re.sub(r"(?<!`)([<>*_|])", r"\\\1", text)


def entry(option):
    names = ", ".join(f"`{name}`" for name in option.names) + (f" *{option.type}*" if option.type else "")
    notes = option.notes()
    return wrapped(f"{names}: {escaped(option.text)}" + (f" ({escaped(notes)})" if notes else ""), "- ", "  ")


def is_help(option):
    return option.names in (["-h", "--help"], ["--help-all"])


def shared_options(commands):
    return next(command.groups[SHARED] for command in commands if SHARED in command.groups)


def markdown(commands, version):
    program, *rest = commands
    out = ["# Command line", "", wrapped(f"Made from the help of ingot {version} by `make docs`; do not edit. {LLAMA}"), ""]
    out += [f"- [`ingot {c.name}`](#ingot-{c.name.replace(' ', '-')}): {c.description}" for c in rest] + [""]
    shared = shared_options(rest)
    for command in rest:
        out += [f"## ingot {command.name}", "", wrapped(command.description + "."), "", f"    {command.usage}", ""]
        out += [entry(p) for p in command.positionals] + [""] * bool(command.positionals)
        for title, options in command.groups.items():
            if title == SHARED and options == shared:
                out += ["And the [options of the Hub](#options-of-the-hub).", ""]
                continue
            out += [entry(option) for option in options if not is_help(option)] + [""]
        if command.footer:
            out += ["```", *[line for long in command.footer.split("\n") for line in (textwrap.wrap(long, WIDTH) or [""])], "```", ""]
    out += ["## Options of the Hub", ""] + [entry(option) for option in shared] + [""]
    return "\n".join(out) + "\n" + ENDINGS.rstrip("\n") + "\n"


def roff(text):
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"), flags=re.M)


def man_entry(option):
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option.names) + (f" \\fI{option.type}\\fR" if option.type else "")
    notes = option.notes()
    return [".TP", names, roff(option.text + (f" ({notes})" if notes else ""))]


def man(commands, version):
    program, *rest = commands
    out = [f'.\\" Made from the help of ingot by `make docs`; do not edit.\n.TH INGOT 1 "" "ingot {version}" "User Commands"', ".SH NAME",
           "ingot \\- run open language models on the machine you have", ".SH SYNOPSIS", "\\fBingot\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]",
           ".SH DESCRIPTION", roff(program.description), ".SH COMMANDS"]
    shared = shared_options(rest)
    for command in rest:
        out += [f".SS ingot {roff(command.name)}", roff(command.description) + ".", ".PP", roff(command.usage)]
        for option in command.positionals:
            out += man_entry(option)
        for title, options in command.groups.items():
            if title == SHARED and options == shared:
                continue
            for option in options:
                out += man_entry(option) if not is_help(option) else []
        if command.groups.get(SHARED) == shared:
            out += [".PP", "And the options of the Hub, below."]
        if command.footer:
            out += [".PP", ".nf", roff(command.footer), ".fi"]
    out += [".SH OPTIONS OF THE HUB"] + [line for option in shared for line in man_entry(option)]
    out += [".SH EXIT STATUS", roff(" ".join(ENDINGS.split("\n\n")[1].split()))]
    out += [".SH SEE ALSO", roff("The pages in docs/ of the source; `ingot COMMAND --help-all`.")]
    return "\n".join(out) + "\n"
