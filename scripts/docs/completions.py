"""Makes shell completions for bash, zsh and fish from the data of program_help.py. Where a model may be given, they
also offer the names that `ingot ls --names` prints."""
import re

TITLE = "# Made from the help of ingot by `make docs`; do not edit."

# Values of options that take others too. tests/cli/docs_test.py finds each in the option's description.
VALUES = {
    "--device": "cpu cuda cuda:1 auto ref",
    "--draft-device": "cpu",
    "--kv-type": "f16 bf16 f32 fp8 q8_0 q8_0/q4_0 q4_0",
    "--quantize": "fp8 q8_0 q4_0 q4_k_m",
    "--isa": "amx avx512bf16 avx512 avx_vnni avx2 neon_i8mm neon_dot portable",
    "--log-level": "debug info warn error off",
    "--gpu-layers": "all auto",
    "--cpu-experts": "all auto",
    "--chat-template": "chatml",
}


def values_of(option):
    return option.choices or next((VALUES[name].split() for name in option.names if name in VALUES), [])


def takes_model(option):
    return any(name in ("MODEL", "--model", "--draft") for name in option.names)


def value_kind(option):
    """The kind of an option's value: "" (none), "choice", "model", "file", or "other"."""
    if not option.type:
        return ""
    return "choice" if values_of(option) else "model" if takes_model(option) else "file" if option.takes_file else "other"


def by_kind(command, kind):
    return [option for option in command.options if value_kind(option) == kind]


def short(text):
    """The start of a description, for a list."""
    text = re.split(r"[;:(]| \(", text)[0].strip()
    return text if len(text) <= 70 else text[:67].rsplit(" ", 1)[0] + "..."


BASH_HELPERS = """\
# Bash splits words at colons: the part before the last one stays as it is.
__ingot_offer() {
  local whole=$cur prefix='' i=$COMP_CWORD
  while ((i > 1)) && [[ ${COMP_WORDS[i]} == : || ${COMP_WORDS[i - 1]} == : ]]; do
    ((i -= 1))
    prefix=${COMP_WORDS[i]}$prefix
  done
  COMPREPLY+=($(compgen -W "$1" -- "$prefix${whole#:}"))
  COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}
__ingot_models() {
  compopt -o filenames
  COMPREPLY+=($(compgen -f -- "$cur"))
  __ingot_offer "$("${COMP_WORDS[0]}" ls --names 2>/dev/null)"
}"""


def bash(commands):
    nested = [c.name for c in commands if c.name]
    models = " | ".join(f"'{c.name}'" for c in commands if any(map(takes_model, c.positionals)))
    out = [TITLE, BASH_HELPERS, "_ingot() {", "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command='' word words='' i",
           "  COMPREPLY=()", "  for ((i = 1; i < COMP_CWORD; ++i)); do", "    word=${command:+$command }${COMP_WORDS[i]}", '    case "$word" in',
           "      " + " | ".join(f"'{name}'" for name in nested) + ") command=$word ;;", "    esac", "  done", '  case "$command:$prev" in']
    for command in commands:
        for option in by_kind(command, "choice"):
            patterns = " | ".join(f"'{command.name}:{name}'" for name in option.names)
            out.append(f"    {patterns}) __ingot_offer '{' '.join(values_of(option))}'; return ;;")
        for kind, action in [("model", "__ingot_models; return"), ("file", "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); return"), ("other", "return")]:
            names = [f"'{command.name}:{name}'" for option in by_kind(command, kind) for name in option.names if name.startswith("-")]
            if names:
                out.append(f"    {' | '.join(names)}) {action} ;;")
    out += ["  esac", '  case "$command" in']
    for command in commands:
        flags = " ".join(name for option in command.options for name in option.names)
        out.append(f"    '{command.name}') words='{' '.join(name.split()[-1] for name in command.subcommands)}'; [[ $cur == -* ]] && words='{flags}' ;;")
    out += ["  esac", '  COMPREPLY=($(compgen -W "$words" -- "$cur"))', '  [[ $cur == -* || -z $command ]] && return',
            f'  case "$command" in', f"    {models}) __ingot_models ;;",
            "    *) compopt -o filenames; COMPREPLY+=($(compgen -f -- \"$cur\")) ;;", "  esac", "}", "complete -F _ingot ingot"]
    return "\n".join(out) + "\n"


ZSH_MODELS = """\
_ingot_models() {
  local -a names=(${(f)"$(_call_program models ingot ls --names 2>/dev/null)"})
  compadd -a names
  _files
}"""


def zsh_quoted(text):
    return text.replace("'", "'\\''").replace("[", "(").replace("]", ")").replace(":", "\\:")


def zsh_option(option):
    choices = " ".join(value.replace(":", "\\:") for value in values_of(option))
    value = {"": "", "choice": f":{option.type}:({choices})", "model": f":{option.type}:_ingot_models", "file": f":{option.type}:_files",
             "other": f":{option.type}: "}[value_kind(option)]
    star = "*" if option.repeats else ""
    excluded = "" if option.repeats or len(option.names) == 1 else f"({' '.join(option.names)})"
    return [f"    '{excluded}{star}{name}[{zsh_quoted(short(option.text))}]{value}'" for name in option.names]


def zsh(commands):
    out = ["#compdef ingot", TITLE, ZSH_MODELS]
    for command in commands:
        function = "_ingot" + "".join("_" + word for word in command.name.split())
        out += [f"{function}() {{"]
        lines = [line for option in command.options for line in zsh_option(option)]
        if command.subcommands:
            names = [(name.split()[-1], next(c.description for c in commands if c.name == name)) for name in command.subcommands]
            files = " _ingot_models" if command.positionals else ""
            out += ["  local state line curcontext=$curcontext", "  _arguments -C \\", " \\\n".join(lines + ["    '1: :->command'", "    '*:: :->rest'"]),
                    "  case $state in", "    command)", "      local -a commands=("]
            out += [f"        '{name}:{zsh_quoted(about)}'" for name, about in names]
            out += ["      )", "      _describe command commands" + (" ;" if files else "") + files + " ;;", "    rest)", "      case $line[1] in"]
            out += [f"        {name}) {function}_{name} ;;" for name, _ in names]
            out += ["      esac ;;", "  esac"]
        else:
            given = "_ingot_models" if any(map(takes_model, command.positionals)) else "_files"
            out += ["  _arguments \\", " \\\n".join(lines + [f"    '*:file:{given}'"])]
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
        if any(map(takes_model, command.positionals)):
            out.append(f"{when} -a '(type -q ingot; and ingot ls --names 2>/dev/null)'")
        for option in command.options:
            names = "".join(f" -l {n[2:]}" if n.startswith("--") else f" -s {n[1:]}" for n in option.names)
            value = {"": "", "choice": f" -x -a {fish_quoted(' '.join(values_of(option)))}",
                     "model": " -r -a '(type -q ingot; and ingot ls --names 2>/dev/null)'", "file": " -r", "other": " -x"}[value_kind(option)]
            out.append(f"{when}{names}{value} -d {fish_quoted(short(option.text))}")
    return "\n".join(out) + "\n"
