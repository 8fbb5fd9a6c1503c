"""Makes shell completions for bash, zsh and fish from the data of program_help.py."""
import re

TITLE = "# Made from the help of ingot by `make docs`; do not edit."


def value_kind(option):
    """The kind of an option's value: "" (none), "choice", "file", or "other"."""
    return "" if not option.type else "choice" if option.choices else "file" if option.takes_file else "other"


def by_kind(command, kind):
    return [option for option in command.options if value_kind(option) == kind]


def short(text):
    """The start of a description, for a list."""
    text = re.split(r"[;:(]| \(", text)[0].strip()
    return text if len(text) <= 70 else text[:67].rsplit(" ", 1)[0] + "..."


def bash(commands):
    nested = [c.name for c in commands if c.name]
    out = [TITLE, "_ingot() {", "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command='' word words='' i",
           "  COMPREPLY=()", "  for ((i = 1; i < COMP_CWORD; ++i)); do", "    word=${command:+$command }${COMP_WORDS[i]}", '    case "$word" in',
           "      " + " | ".join(f"'{name}'" for name in nested) + ") command=$word ;;", "    esac", "  done", '  case "$command:$prev" in']
    for command in commands:
        for option in by_kind(command, "choice"):
            patterns = " | ".join(f"'{command.name}:{name}'" for name in option.names)
            out.append(f"    {patterns}) COMPREPLY=($(compgen -W '{' '.join(option.choices)}' -- \"$cur\")); return ;;")
        for kind, action in [("file", "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); return"), ("other", "return")]:
            names = [f"'{command.name}:{name}'" for option in by_kind(command, kind) for name in option.names if name.startswith("-")]
            if names:
                out.append(f"    {' | '.join(names)}) {action} ;;")
    out += ["  esac", '  case "$command" in']
    for command in commands:
        flags = " ".join(name for option in command.options for name in option.names)
        out.append(f"    '{command.name}') words='{' '.join(name.split()[-1] for name in command.subcommands)}'; [[ $cur == -* ]] && words='{flags}' ;;")
    out += ["  esac", '  COMPREPLY=($(compgen -W "$words" -- "$cur"))', '  if [[ $cur != -* && -n $command ]]; then',
            "    compopt -o filenames", '    COMPREPLY+=($(compgen -f -- "$cur"))', "  fi", "}", "complete -F _ingot ingot"]
    return "\n".join(out) + "\n"


def zsh_quoted(text):
    return text.replace("'", "'\\''").replace("[", "(").replace("]", ")").replace(":", "\\:")


def zsh_option(option):
    value = {"": "", "choice": f":{option.type}:({' '.join(option.choices)})", "file": f":{option.type}:_files",
             "other": f":{option.type}: "}[value_kind(option)]
    star = "*" if option.repeats else ""
    excluded = "" if option.repeats or len(option.names) == 1 else f"({' '.join(option.names)})"
    return [f"    '{excluded}{star}{name}[{zsh_quoted(short(option.text))}]{value}'" for name in option.names]


def zsh(commands):
    out = ["#compdef ingot", TITLE]
    for command in commands:
        function = "_ingot" + "".join("_" + word for word in command.name.split())
        out += [f"{function}() {{"]
        lines = [line for option in command.options for line in zsh_option(option)]
        if command.subcommands:
            names = [(name.split()[-1], next(c.description for c in commands if c.name == name)) for name in command.subcommands]
            files = " _files" if command.positionals else ""
            out += ["  local state line curcontext=$curcontext", "  _arguments -C \\", " \\\n".join(lines + ["    '1: :->command'", "    '*:: :->rest'"]),
                    "  case $state in", "    command)", "      local -a commands=("]
            out += [f"        '{name}:{zsh_quoted(about)}'" for name, about in names]
            out += ["      )", "      _describe command commands" + (" ;" if files else "") + files + " ;;", "    rest)", "      case $line[1] in"]
            out += [f"        {name}) {function}_{name} ;;" for name, _ in names]
            out += ["      esac ;;", "  esac"]
        else:
            out += ["  _arguments \\", " \\\n".join(lines + ["    '*:file:_files'"])]
        out += ["}", ""]
    out.append('_ingot "$@"')
    return "\n".join(out) + "\n"


def fish_quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish(commands):
    out = [TITLE, "function __ingot_is --description 'whether the words so far are this command, and no command below it'",
           "    set -l words (commandline -opc)[2..-1]", "    set -l found", "    for word in $words", "        switch \"$found $word\""]
    for command in commands:
        if command.name:
            parent, _, last = command.name.rpartition(" ")
            out += [f"            case '{parent} {last}'", "                set found " + f"'{command.name}'"]
    out += ["        end", "    end", "    test \"$found\" = \"$argv\"", "end", "complete -c ingot -n '__ingot_is \"\"' -f"]
    for command in commands:
        when = f"complete -c ingot -n '__ingot_is \"{command.name}\"'"
        for name in command.subcommands:
            about = next(c.description for c in commands if c.name == name)
            out.append(f"{when} -a {name.split()[-1]} -d {fish_quoted(about)}")
        for option in command.options:
            names = "".join(f" -l {n[2:]}" if n.startswith("--") else f" -s {n[1:]}" for n in option.names)
            value = {"": "", "choice": f" -x -a {fish_quoted(' '.join(option.choices))}", "file": " -r", "other": " -x"}[value_kind(option)]
            out.append(f"{when}{names}{value} -d {fish_quoted(short(option.text))}")
    return "\n".join(out) + "\n"
