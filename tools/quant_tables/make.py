#!/usr/bin/env python3
"""The codebook grids of ggml's IQ types, from the `gguf` package, as the tables that src/quant/iq.h includes.

    pip install gguf numpy && python tools/quant_tables/make.py src/quant/grids

A grid's entry is 8 magnitudes, or 4 for IQ3, of a few values each. A table has one 16-bit word an entry: 8 indices of 2 bits, or
4 of 4 bits, into the ascending list of those values, element 0 in the lowest bits.
"""
import pathlib
import sys

import numpy as np
from gguf import quants

GRIDS = {"iq1": quants.IQ1_S, "iq2_xxs": quants.IQ2_XXS, "iq2_xs": quants.IQ2_XS, "iq2_s": quants.IQ2_S, "iq3_xxs": quants.IQ3_XXS,
         "iq3_s": quants.IQ3_S}
WORDS_A_LINE = 14


def words_of(kind):
    kind.init_grid()
    n_entries, n_elements = kind.grid_shape
    values = kind.grid.reshape(n_entries, n_elements)
    assert list(kind.grid_map) == sorted(kind.grid_map) and np.isin(values, kind.grid_map).all()
    indices = np.searchsorted(kind.grid_map, values).astype(np.uint32)
    shifts = np.arange(n_elements, dtype=np.uint32) * (16 // n_elements)
    return np.bitwise_or.reduce(indices << shifts, axis=1)


def table_text(name, kind):
    values = ", ".join(str(v) for v in kind.grid_map)
    lines = [f"// Made by tools/quant_tables/make.py: the grid {name}, {kind.grid_shape[0]} entries of {kind.grid_shape[1]} of {values}."]
    words = [f"0x{w:04X}," for w in words_of(kind)]
    lines += [" ".join(words[i:i + WORDS_A_LINE]) for i in range(0, len(words), WORDS_A_LINE)]
    return "\n".join(lines) + "\n"


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, kind in GRIDS.items():
        (folder / f"{name}.inc").write_text(table_text(name, kind))


if __name__ == "__main__":
    main(sys.argv[1])
