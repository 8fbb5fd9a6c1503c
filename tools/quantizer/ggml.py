"""ggml's quantizers, called in its own library (libggml-base.so: the llama-cpp-python wheel has one, or build llama.cpp)."""
import ctypes

import gguf
import numpy as np


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class Ggml:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.ggml_init.restype = ctypes.c_void_p
        self.library.ggml_init(InitParams(1 << 16, None, True))  # fills the table of f16 values that the quantizers read
        self.library.ggml_quantize_chunk.restype = ctypes.c_size_t

    def quantize(self, weights, type, importance=None):
        """weights: float32 [rows, n]; importance: [n], the weight of each column's squared error. Returns uint8 [rows, bytes]."""
        rows, n = weights.shape
        weights = np.ascontiguousarray(weights, np.float32)
        block, n_bytes = gguf.GGML_QUANT_SIZES[type]
        out = np.zeros((rows, n // block * n_bytes), np.uint8)
        importance = None if importance is None else np.ascontiguousarray(importance, np.float32)
        pointer = lambda a: None if a is None else a.ctypes.data_as(ctypes.c_void_p)
        written = self.library.ggml_quantize_chunk(ctypes.c_int(type), pointer(weights), pointer(out), ctypes.c_int64(0),
                                                   ctypes.c_int64(rows), ctypes.c_int64(n), pointer(importance))
        assert written == out.size, (type, written, out.size)
        return out


def squared_error(weights, blocks, type, importance=None):
    """Sum of importance * (weight - what its code stands for)^2, by the gguf package's dequantizer, in float64."""
    off = (weights.astype(np.float64) - gguf.dequantize(blocks, type).astype(np.float64)) ** 2
    return float((off * (1.0 if importance is None else importance.astype(np.float64))).sum())


def squared(weights, importance=None):
    return float((weights.astype(np.float64) ** 2 * (1.0 if importance is None else importance.astype(np.float64))).sum())
