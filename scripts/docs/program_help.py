"""Reads the program's help: read_commands(PROGRAM) returns every command with its options, as printed by
`ingot COMMAND --help-all`.

cli.py and completions.py make the command line reference, the man page and the shell completions from this data.
"""
import dataclasses
import re
import subprocess

COLUMN = 30  # where CLI11 begins descriptions


@dataclasses.dataclass
class Option:
    names: list  # ["-n", "--predict"]; of a positional: ["MODEL"]
    text: str
    type: str = ""  # TEXT, INT, ...; empty: a flag
    choices: list = dataclasses.field(default_factory=list)
    range: tuple = ()
    default: str = ""
    required: bool = False
    repeats: bool = False
    excludes: list = dataclasses.field(default_factory=list)
    needs: list = dataclasses.field(default_factory=list)

    @property
    def takes_file(self):
        return self.is_file or re.search(r"\bfile\b|\bGGUF\b|@FILE", self.text) is not None

    is_file: bool = False

    def notes(self):
        """Facts that the description omits, in words."""
        notes = []
        if self.choices and not all(choice in self.text for choice in self.choices):
            notes.append("one of " + ", ".join(self.choices))
        if self.range:
            notes.append("from {} to {}".format(*self.range))
        if self.default and not self.text.endswith(f"[{self.default}]"):
            notes.append(f"default: {self.default}")
        notes += ["required"] * self.required + ["repeatable"] * (self.repeats and "repeatable" not in self.text)
        notes += [f"not with {', '.join(self.excludes)}"] * bool(self.excludes)
        notes += [f"needs {', '.join(self.needs)}"] * bool(self.needs)
        return "; ".join(notes)


@dataclasses.dataclass
class Command:
    name: str  # "" (the program), "run", "bench serve"
    description: str
    usage: str
    positionals: list
    groups: dict  # "Options", "Hugging Face Hub": [Option]
    subcommands: list  # names
    footer: str

    @property
    def options(self):
        return [option for group in self.groups.values() for option in group]


def read_option(spec, text):
    names, _, rest = spec.partition(" ")
    option = Option(names.split(","), text)
    for name, words in re.findall(r"(Excludes|Needs): ((?:-?-?[\w-]+ ?)+)", rest):
        words = words.replace("Excludes", "").replace("Needs", "").split()
        setattr(option, name.lower(), words)
    rest = re.sub(r"(Excludes|Needs):.*", "", rest).strip()
    option.required = "REQUIRED" in rest
    option.repeats = rest.endswith("...") and "(=" not in rest
    rest = rest.replace("REQUIRED", "").removesuffix("...").strip()
    option.type = re.match(r"[A-Z]*", rest)[0]
    if found := re.search(r":\{([^}]*)\}", rest):
        option.choices = found[1].split(",")
    if found := re.search(r"in \[(\S+) - (\S+?)\]", rest):
        option.range = (found[1], found[2])
    option.is_file = ":FILE" in rest
    if found := re.search(r"=(\[[^\]]*\]|[^\s=\])]\S*)$", rest):
        option.default = found[1].strip("[]").replace("[", "").replace("]", "")
    return option


def parse(name, text):
    lines = text.rstrip("\n").split("\n")
    usage = next(i for i, line in enumerate(lines) if line.startswith("Usage: "))
    command = Command(name, " ".join(lines[:usage]), lines[usage].removeprefix("Usage: "), [], {}, [], "")
    section, footer, rows = "", [], []
    for line, following in zip(lines[usage + 1 :], lines[usage + 2 :] + [""]):
        if footer or (line and not line.startswith(" ") and (not line.endswith(":") or line.startswith("Example"))):
            footer.append(line)
        elif line and not line.startswith(" "):
            section = line.rstrip(":")
        elif line.startswith(" " * COLUMN):
            rows[-1][2] += (" " if rows[-1][2] else "") + line.strip()
        elif line.strip():
            end = len(line) if following.startswith(" " * COLUMN) else COLUMN  # a long option has its own line
            rows.append([section, line[:end].strip(), line[end:].strip()])
    for section, spec, about in rows:
        if section == "Subcommands":
            command.subcommands.append((name + " " + spec).strip())
        elif section == "Positionals":
            command.positionals.append(read_option(spec, about))
        else:
            command.groups.setdefault(section, []).append(read_option(spec, about))
    command.footer = "\n".join(footer)
    return command


def read_commands(program):
    """Every command, in the order of the help; the program itself first."""
    commands, names = [], [""]
    while names:
        name = names.pop(0)
        said = subprocess.run([program, *name.split(), "--help-all"], capture_output=True, text=True, check=True).stdout
        commands.append(parse(name, said))
        if name and commands[-1].footer == commands[0].footer:  # CLI11 inherits the footer
            commands[-1].footer = ""
        names = commands[-1].subcommands + names
    return commands


def read_version(program):
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
