"""Pictures for the tests of images, without other packages: the pixels of tools/goldens/pictures.py as PNG files."""
import base64
import struct
import zlib


def pixels(width, height, seed=0):
    return bytes(
        (x * (3 + c + seed) + y * (5 - c) + ((x * y) >> (c + 2)) + 40 * c + 17 * seed) & 255
        for y in range(height) for x in range(width) for c in range(3)
    )


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, seed=0, flat=False):
    rows = bytes(width * height * 3) if flat else pixels(width, height, seed)
    data = b"".join(b"\0" + rows[y * width * 3:(y + 1) * width * 3] for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def base64_of(data):
    return base64.b64encode(data).decode()


def data_url(data, kind="image/png"):
    return f"data:{kind};base64,{base64_of(data)}"
