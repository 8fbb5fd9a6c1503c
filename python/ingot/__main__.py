"""`python -m ingot` is the program `ingot`, which the package carries."""
import os
import sys

from .model import PROGRAM


def main() -> None:
    os.execv(PROGRAM, ["ingot", *sys.argv[1:]])


if __name__ == "__main__":
    main()
