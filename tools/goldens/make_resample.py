#!/usr/bin/env python3
"""Makes tests/data/resample.json: some pixels of pictures that Pillow resizes, for each filter and several sizes.

    pip install pillow numpy
    python tools/goldens/make_resample.py [-o tests/data/resample.json]
"""
import argparse
import json
import pathlib
from importlib.metadata import version

import numpy as np
from PIL import Image
from pictures import image

SIZES = [((1, 1), (5, 3)), ((1, 400), (7, 2)), ((17, 31), (64, 48)), ((333, 60), (32, 32)), ((64, 48), (64, 20)),
         ((64, 48), (9, 48)), ((40, 41), (39, 42)), ((20, 90), (36, 36)), ((500, 300), (13, 7))]
N_SAMPLES = 40

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-o", "--out", type=pathlib.Path, default=pathlib.Path("tests/data/resample.json"))
args = parser.parse_args()
rows = []
for seed, (size, to) in enumerate(SIZES):
    for filter in range(6):
        values = np.asarray(image(*size, seed).resize(to, Image.Resampling(filter))).ravel()
        step = max(1, len(values) // N_SAMPLES)
        rows.append({"size": size, "to": to, "seed": seed, "filter": filter, "step": step, "values": values[::step].tolist()})
lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
args.out.write_text(f'{{"pillow": "{version("pillow")}", "rows": [\n{lines}\n]}}\n')
