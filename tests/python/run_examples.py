"""Runs the ```python blocks of a page in order, as one program: run_examples.py PAGE. Names of models on the Hub and of files that a
reader has become the package's demo model and small models of the tests."""
import pathlib
import re
import sys

import ingot

DATA = pathlib.Path(__file__).parent.parent / "data"
STAND_INS = {"bge-small": DATA / "encoders" / "bert", "embeddinggemma": DATA / "encoders" / "gemma_embed", "reranker": DATA / "rankers" / "bert"}


def main(page):
    text = pathlib.Path(page).read_text()
    load = ingot.Model.load

    def load_stand_in(model=None, **options):
        path = next((path for name, path in STAND_INS.items() if model and name in model.lower()), None)
        return load(path, **{"n_threads": 2, **({} if path else {"n_ctx": 512}), **options})

    ingot.Model.load = load_stand_in
    names = {"__name__": "__main__"}
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.S | re.M))
    assert blocks, f"{page} has no example"
    for block in blocks:
        line = text.count("\n", 0, block.start()) + 1
        exec(compile("\n" * line + block[1], page, "exec"), names)


if __name__ == "__main__":
    main(sys.argv[1])
