"""Writes tests/data/images: small files of every kind that src/io/images reads, and what pillow makes of them.

    python tools/image_goldens/make.py tests/data/images      (pillow 13, with WebP and AVIF)

NAME.EXT is the file; expected.bin holds, for each file in the order of expected.txt, its pixels in RGB. The pixels are
those that transformers' load_image() gives, laid over white: exif_transpose(), RGBA, alpha_composite().
"""
import io
import pathlib
import struct
import sys
import zlib

from PIL import Image, ImageOps

W, H = 20, 13


def picture(mode="RGB", alpha=False):
    """A picture without symmetry: each corner has a colour of its own."""
    out = Image.new("RGBA", (W, H))
    for y in range(H):
        for x in range(W):
            a = 255 if not alpha else min(255, 20 * x)
            out.putpixel((x, y), (255 * x // (W - 1), 255 * y // (H - 1), (x * y * 5) % 256 if x > y else 40, a))
    return out.convert(mode)


def saved(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    return data


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(bits, color, rows, interlaced=False, extra=b"", width=W, height=H):
    """A PNG file written by hand: pillow writes neither 16-bit colours nor interlaced files."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, int(interlaced)))
    data = b"".join(b"\0" + row for row in rows)
    return b"\x89PNG\r\n\x1a\n" + head + extra + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")


def interlaced_rows(image):
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        for y in range(y0, H, dy):
            row = b"".join(bytes(image.getpixel((x, y))) for x in range(x0, W, dx))
            if row:
                yield row


def files():
    rgb, rgba, grey = picture(), picture("RGBA", alpha=True), picture("L")
    jpeg = lambda image, **o: saved(image, "JPEG", quality=90, **o)
    yield "rgb.jpg", jpeg(rgb)
    yield "444.jpg", jpeg(rgb, subsampling=0)
    yield "422.jpg", jpeg(rgb, subsampling=1)
    yield "progressive.jpg", jpeg(rgb, progressive=True)
    yield "grey.jpg", jpeg(grey)
    yield "cmyk.jpg", jpeg(rgb.convert("CMYK"))
    yield "restarts.jpg", jpeg(rgb, restart_marker_rows=1)
    for orientation in range(1, 9):
        yield f"turned{orientation}.jpg", jpeg(rgb, exif=exif(orientation))
    yield "rgb.png", saved(rgb, "PNG")
    yield "rgba.png", saved(rgba, "PNG")
    yield "grey.png", saved(grey, "PNG")
    yield "grey_alpha.png", saved(picture("LA", alpha=True), "PNG")
    yield "palette.png", saved(rgb.quantize(16), "PNG")
    yield "palette_alpha.png", saved(rgba.quantize(16), "PNG")
    yield "one_bit.png", saved(grey.convert("1"), "PNG")
    yield "turned6.png", saved(rgb, "PNG", exif=exif(6))
    wide = [b"".join(struct.pack(">HHH", *(257 * c ^ 0x35 for c in rgb.getpixel((x, y)))) for x in range(W)) for y in range(H)]
    yield "16_bits.png", png(16, 2, wide)
    clear = chunk(b"tRNS", struct.pack(">HHH", *rgb.getpixel((3, 2))))
    yield "clear_colour.png", png(8, 2, [b"".join(bytes(rgb.getpixel((x, y))) for x in range(W)) for y in range(H)], extra=clear)
    yield "interlaced.png", png(8, 2, interlaced_rows(rgb), interlaced=True)
    yield "lossy.webp", saved(rgb, "WEBP", quality=90)
    yield "lossless.webp", saved(rgba, "WEBP", lossless=True, exact=True)
    yield "turned8.webp", saved(rgb, "WEBP", lossless=True, exif=exif(8))
    yield "film.webp", saved(rgba, "WEBP", lossless=True, exact=True, save_all=True, append_images=[rgb.rotate(180)], duration=50)
    yield "rgb.gif", saved(rgb.quantize(16), "GIF")
    yield "clear.gif", saved(rgba.quantize(8), "GIF")
    yield "film.gif", saved(rgb.quantize(8), "GIF", save_all=True, append_images=[rgb.rotate(180).quantize(8)], duration=50)
    yield "interlaced.gif", saved(rgb.quantize(16), "GIF", interlace=1)
    yield "rgb.avif", saved(rgb, "AVIF", quality=90, subsampling="4:4:4")


def expected(data):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    lines, pixels = [], b""
    for name, data in files():
        (folder / name).write_bytes(data)
        image = expected(data)
        lines.append(f"{name} {image.width} {image.height}")
        pixels += image.tobytes()
    (folder / "expected.txt").write_text("\n".join(lines) + "\n")
    (folder / "expected.bin").write_bytes(pixels)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
