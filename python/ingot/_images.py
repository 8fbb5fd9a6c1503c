"""Images and recordings as files in memory, which C reads."""
from __future__ import annotations

import os
import struct
import zlib
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

import numpy as np

from . import _library as lib

if TYPE_CHECKING:
    from numpy.typing import NDArray

Image = Union[str, "os.PathLike[str]", bytes, "NDArray[np.uint8]"]
COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # of PNG: grey, RGB, RGBA


def png_of(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file. pixels: [height, width], or with 1, 3 or 4 channels; 8 bits each."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in COLOUR_TYPES):
        raise lib.InvalidError(f"the image is an array of {pixels.dtype} {list(pixels.shape)}: expected uint8 "
                               "[height, width], or [height, width, 1, 3 or 4]")
    height, width = pixels.shape[:2]
    if height == 0 or width == 0:
        raise lib.InvalidError(f"the image is an empty array: {list(pixels.shape)}")
    rows = np.zeros((height, 1 + pixels.size // height), np.uint8)  # each begins with the number of its filter, none
    rows[:, 1:] = pixels.reshape(height, -1)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    colour = COLOUR_TYPES[pixels.shape[2] if pixels.ndim == 3 else 1]
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 1)) +
            chunk(b"IEND", b""))


def bytes_of(image: Image) -> bytes:
    """The bytes of a file. Throws InvalidError."""
    if isinstance(image, bytes):
        return image
    if hasattr(image, "__array_interface__"):  # also Pillow's images
        return png_of(np.asarray(image))
    try:
        with open(image, "rb") as file:
            return file.read()
    except (OSError, TypeError) as error:
        raise lib.InvalidError(f"the image {image!r} cannot be read: {error}") from None


def files_of(images: Optional[Sequence[Image]]) -> Any:
    """The images, for C; None without images."""
    if images is None or len(images) == 0:
        return None
    if isinstance(images, (str, bytes, os.PathLike)) or hasattr(images, "__array_interface__"):
        raise lib.InvalidError("images is one image: give a list of paths, bytes or arrays")
    return lib.images([bytes_of(image) for image in images])
