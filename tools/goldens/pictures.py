"""The pictures of the goldens of vision towers. tests/model/vision/pictures.h makes the same pixels."""
import numpy as np
from PIL import Image


def picture(width, height, seed):
    """Waves and edges of all sizes -> uint8 [height, width, 3]."""
    x = np.arange(width, dtype=np.int64)[None, :, None]
    y = np.arange(height, dtype=np.int64)[:, None, None]
    c = np.arange(3, dtype=np.int64)[None, None, :]
    value = x * (3 + c + seed) + y * (5 - c) + ((x * y) >> (c + 2)) + 40 * c + 17 * seed
    return (value & 255).astype(np.uint8)


def image(width, height, seed):
    return Image.fromarray(picture(width, height, seed))
