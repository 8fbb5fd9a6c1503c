"""An importance matrix of the demo model: the mean squares of each matrix's inputs over a text, computed in NumPy, in
the format of llama.cpp's older .dat file."""
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "demo_model"))
import numpy_llama  # noqa: E402


class Recorder(dict):
    """The tensors of a model. When a matrix is used in a product (x @ t[name].T), it records the squares of x."""

    def __init__(self, tensors):
        super().__init__(tensors)
        self.sums, self.counts = {}, {}

    def __getitem__(self, name):
        value = super().__getitem__(name)
        return Noted(value, name, self) if value.ndim == 2 and name != "token_embd.weight" else value

    def note(self, name, x):
        x = np.asarray(x, np.float64).reshape(-1, x.shape[-1])
        self.sums[name] = self.sums.get(name, 0) + (x * x).sum(0)
        self.counts[name] = self.counts.get(name, 0) + len(x)

    def means(self):
        return {name: (total / self.counts[name]).astype(np.float32) for name, total in self.sums.items()}


class Noted:
    """A matrix on the right of @, transposed."""

    __array_ufunc__ = None  # makes NumPy call __rmatmul__

    def __init__(self, value, name, recorder):
        self.value, self.name, self.recorder = value, name, recorder

    @property
    def T(self):
        return self

    def __rmatmul__(self, x):
        self.recorder.note(self.name, x)
        return x @ self.value.T


def importance_of(model_path, text, n_tokens=2048, window=512):
    meta, tensors = numpy_llama.read(model_path)
    ids = numpy_llama.tokenizer_of(meta).encode(text, add_special_tokens=False).ids[:n_tokens]
    recorder = Recorder(tensors)
    model = numpy_llama.NumpyLlama(meta, recorder)
    for start in range(0, len(ids), window):
        model.reset()
        model.forward(ids[start:start + window])
    return recorder.means()


def write_dat(path, means, n_chunks=1, dataset="demo"):
    with open(path, "wb") as file:
        file.write(struct.pack("<i", len(means)))
        for name, values in means.items():
            file.write(struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 1, len(values)) + values.astype("<f4").tobytes())
        file.write(struct.pack("<ii", n_chunks, len(dataset)) + dataset.encode())
