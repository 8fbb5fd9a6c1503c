#!/usr/bin/env python3
"""Writes the manifests for Homebrew and winget beside the packages that they name: scripts/packages/manifests.py OUT
VERSION [ADDRESS].

ADDRESS is the folder on the web that will have the packages. A manifest whose package is not in OUT is not written.
"""
import hashlib
import pathlib
import re
import sys

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
# The template, the written file, the package whose hash the template has, and the hash's name.
MANIFESTS = [
    ("homebrew.rb.in", "ingot.rb", "ingot-{}-linux-x86_64.tar.gz", "TARBALL_SHA256"),
    ("winget.yaml.in", "ingot.winget.yaml", "ingot-{}-windows-x86_64-setup.exe", "SETUP_SHA256"),
]


def fill(template, values):
    return re.sub(r"@([A-Z0-9_]+)@", lambda found: values[found[1]], template)


def main(out, version, address="https://ingot.example"):
    out = pathlib.Path(out)
    for template, name, package, hash_name in MANIFESTS:
        file = out / package.format(version)
        if file.exists():
            values = {"VERSION": version, "ADDRESS": address, hash_name: hashlib.sha256(file.read_bytes()).hexdigest()}
            (out / name).write_text(fill((DEPLOY / template).read_text(), values))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
