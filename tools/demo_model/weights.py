"""Weights of a training run: weights-N.npz, float32, in files that are small enough to copy easily."""

import numpy as np

SHARD_BYTES = 14_000_000


def save(state_dict, out):
    for old in out.glob("weights-*.npz"):
        old.unlink()
    part, size, n = {}, 0, 0
    state = {k: v.detach().float().cpu().numpy() for k, v in state_dict.items()}
    for i, (name, value) in enumerate(state.items()):
        part[name] = value
        size += value.nbytes
        if size > SHARD_BYTES or i == len(state) - 1:
            np.savez(out / f"weights-{n}.npz", **part)
            part, size, n = {}, 0, n + 1


def load(run):
    state = {}
    for path in sorted(run.glob("weights-*.npz")):
        state.update(np.load(path))
    return state
