#!/usr/bin/env python3
"""Prints the longest files and functions of the tree, and fails if one is too long.

    scripts/size.py [ROOT]

Too long: a file over 600 lines without `Long because ...` in its first lines, or a function over 120 lines. The aim is
much less: files of about 120 lines, functions under 70. C++ is parsed by matching braces, Python by Python's parser.
"""
import ast
import pathlib
import re
import sys

FOLDERS = ["src", "include", "tests", "bench", "tools", "scripts"]
CPP = {".h", ".cc", ".cu", ".cuh"}
MAX_FILE, MAX_FUNCTION, AIM_FUNCTION, N_TOP = 600, 120, 70, 8
NOT_FUNCTION = re.compile(r"^\s*(namespace|extern|enum|(template\s*<.*>\s*)?(class|struct|union))\b", re.S)
TOKEN = re.compile(r'R"(?P<delim>[^(\s]*)\(.*?\)(?P=delim)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/|^[ \t]*#(?:\\\n|[^\n])*',
                   re.S | re.M)


def cpp_functions(text):
    """Yields (name, first line, lines) of each function, lambdas within counted as part of it."""
    def blank(m):  # a digit separator (1'000) is not a literal: keep what follows a digit
        return m[0] if m[0][0] == "'" and text[m.start() - 1].isalnum() else re.sub(r"[^\n]", " ", m[0])
    code = TOKEN.sub(blank, text)
    start = 0            # where the header of the next scope begins
    parens = 0
    scopes = []          # for each open brace: None (class, namespace, initializer) or (name, first line) of a function
    for i, c in enumerate(code):
        if c in "()":
            parens += 1 if c == "(" else -1
        elif c == "{":
            header = code[start:i]
            within = any(scopes)
            if not within and parens == 0 and is_function(header):
                first = code.count("\n", 0, start + len(header) - len(header.lstrip())) + 1
                scopes.append((function_name(header), first))
                start = i + 1
            else:
                scopes.append(None)
                if parens == 0 and not within and NOT_FUNCTION.match(header):
                    start = i + 1
        elif c == "}":
            scope = scopes.pop() if scopes else None
            if scope:
                yield scope[0], scope[1], code.count("\n", 0, i) + 2 - scope[1]
            if scope or NOT_FUNCTION.match(code[start:i]) or not code[start:i].strip():
                start = i + 1
        elif (c == ";" and parens == 0) or (c == ":" and re.search(r"\b(public|private|protected)$", code[start:i])):
            start = i + 1


def is_function(header):
    """`header` { opens a function's body: there are parameters, and the brace follows them, a qualifier or a constructor's list."""
    if "(" not in header or NOT_FUNCTION.match(header):
        return False
    after = header[header.rindex(")") + 1:] if ")" in header else header
    if re.search(r"\)\s*(noexcept\s*)?:[^:]", header):  # a constructor's list: a{x} opens an initializer, a(x) { the body
        return not re.search(r"[\w>]\s*$", header)
    return re.fullmatch(r"(\s|const|noexcept|override|final|mutable|&|->.*)*", after, re.S) is not None and "=" not in after


def function_name(header):
    match = re.search(r"([~\w:]+|operator[^(]+)\s*\(([^()]*)", header)
    name = match[1] if match else header.split()[0]
    if name.startswith("TEST"):
        name += "(" + ", ".join(match[2].split(",")).replace("  ", " ") + ")"
    return name


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def measure(root):
    """[(lines, file, has a reason)], [(lines, file:line, name)], the longest first."""
    files, functions = [], []
    for path in (p for folder in FOLDERS for p in (root / folder).rglob("*")):
        if path.suffix not in CPP | {".py"} or not path.is_file():
            continue
        text = path.read_text()
        name = path.relative_to(root).as_posix()
        files.append((text.count("\n"), name, "Long because" in text[:1500]))
        of = python_functions if path.suffix == ".py" else cpp_functions
        functions += [(lines, f"{name}:{first}", function) for function, first, lines in of(text)]
    return sorted(files, reverse=True), sorted(functions, reverse=True)


def main(root):
    files, functions = measure(root)
    if not files:
        print(f"size: no source files under {root}")
        return 1
    print(f"{len(files)} files, median {files[len(files) // 2][0]} lines; {len(functions)} functions")
    for lines, name, _ in files[:N_TOP]:
        print(f"{lines:6} {name}")
    for lines, where, name in [f for f in functions[:N_TOP] if f[0] > AIM_FUNCTION] or functions[:1]:
        print(f"{lines:6} {where} {name}")
    bad = [f"{name}: {lines} lines (over {MAX_FILE} wants a reason at its top)" for lines, name, reason in files
           if lines > MAX_FILE and not reason]
    bad += [f"{where}: {name} is {lines} lines (at most {MAX_FUNCTION})" for lines, where, name in functions if lines > MAX_FUNCTION]
    print("\n".join(bad) if bad else "nothing is too long")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
