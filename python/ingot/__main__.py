"""`python -m ingot` is the program `ingot`, which the package carries."""
import os
import sys

from .model import PROGRAM, environment


def main() -> None:
    os.execve(PROGRAM, ["ingot", *sys.argv[1:]], environment())


if __name__ == "__main__":
    main()
