"""Decoding of images: every form of a picture becomes the same RGB values, and every broken file one line."""

import base64
import gzip
import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from models.base.errors import UserError
from models.base.pictures import MOST_PIXELS, decoded


def encoded(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def drawn(mode: str = "RGB", colour: Any = (200, 30, 60), size: tuple[int, int] = (6, 4)) -> Image.Image:
    return Image.new(mode, size, colour)


def values(content: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(decoded(content, "image x"))


def header_of(width: int, height: int) -> bytes:
    """Make a PNG file that states a size and has no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def bomb_of_text() -> bytes:
    """Make a PNG file whose comment becomes 2 MiB when it is decompressed."""
    comment = PngImagePlugin.PngInfo()
    comment.add_text("comment", "x" * (2 << 20), zip=True)
    return encoded(drawn(), pnginfo=comment)


def interlaced() -> bytes:
    """Return a PNG of 4 x 4 pixels in Adam7 order, all (200, 30, 60)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    widths = {1: (1, 1), 4: (1, 1), 5: (2, 1), 6: (2, 2), 7: (4, 2)}  # pass: pixels of a line, lines
    lines = b"".join((b"\0" + bytes((200, 30, 60)) * width) * count for width, count in widths.values())
    head = struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


NOISE = encoded(Image.effect_noise((64, 64), 90))
NOISE_JPEG = encoded(Image.effect_noise((64, 64), 90), "JPEG")
PALETTE = drawn().quantize(4)
SIDEWAYS = Image.Exif()
SIDEWAYS[0x0112] = 6  # turn by 90 degrees
DEEP = Image.fromarray(np.full((4, 6), 200 * 256 + 255, dtype=np.uint16))
READ: dict[str, tuple[bytes, tuple[int, int, int], tuple[int, int]]] = {
    "RGB": (encoded(drawn()), (200, 30, 60), (6, 4)),
    "palette": (encoded(PALETTE), (200, 30, 60), (6, 4)),
    "grey": (encoded(drawn("L", 90)), (90, 90, 90), (6, 4)),
    "black and white": (encoded(drawn("1", 1)), (255, 255, 255), (6, 4)),
    "16 bits": (encoded(DEEP), (200, 200, 200), (6, 4)),
    "opaque alpha": (encoded(drawn("RGBA", (200, 30, 60, 255))), (200, 30, 60), (6, 4)),
    "transparent, over white": (encoded(drawn("RGBA", (200, 30, 60, 0))), (255, 255, 255), (6, 4)),
    "half transparent": (encoded(drawn("RGBA", (0, 0, 0, 128))), (127, 127, 127), (6, 4)),
    "grey with alpha": (encoded(drawn("LA", (90, 0))), (255, 255, 255), (6, 4)),
    "transparent colour of a palette": (encoded(PALETTE, transparency=0), (255, 255, 255), (6, 4)),
    "turned by EXIF": (encoded(drawn(), "JPEG", exif=SIDEWAYS, quality=100), (200, 30, 60), (4, 6)),
    "CMYK": (encoded(drawn("CMYK", (0, 255, 255, 0)), "JPEG", quality=100), (255, 0, 0), (6, 4)),
    "interlaced": (interlaced(), (200, 30, 60), (4, 4)),
    "progressive": (encoded(drawn(), "JPEG", progressive=True, quality=100), (200, 30, 60), (6, 4)),
    "a grey JPEG": (encoded(drawn("L", 90), "JPEG", quality=100), (90, 90, 90), (6, 4)),
    "broken EXIF data": (encoded(drawn(), "JPEG", exif=b"Exif\0\0garbage", quality=100), (200, 30, 60), (6, 4)),
    "bytes after the end": (encoded(drawn()) + b"garbage", (200, 30, 60), (6, 4)),
    "the first of a telephone's two pictures": (
        encoded(drawn(), "MPO", save_all=True, append_images=[drawn(colour=(0, 0, 0))], quality=100),
        (200, 30, 60),
        (6, 4),
    ),
    "one pixel": (encoded(drawn(size=(1, 1))), (200, 30, 60), (1, 1)),
}
REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not a PNG or JPEG file"),
    "text": (b"this is no image", "not a PNG or JPEG file"),
    "GIF": (encoded(PALETTE, "GIF"), "not a PNG or JPEG file"),
    "BMP": (encoded(drawn(), "BMP"), "not a PNG or JPEG file"),
    "TIFF": (encoded(drawn(), "TIFF"), "not a PNG or JPEG file"),
    "WebP": (encoded(drawn(), "WEBP"), "not a PNG or JPEG file"),
    "an SVG drawing": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a PNG or JPEG file"),
    "an icon": (encoded(drawn(size=(16, 16)), "ICO"), "not a PNG or JPEG file"),
    "JPEG 2000": (encoded(drawn(size=(16, 16)), "JPEG2000"), "not a PNG or JPEG file"),
    "HEIC": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "not a PNG or JPEG file"),
    "PDF": (b"%PDF-1.7\n%\xe2\xe3", "not a PNG or JPEG file"),
    "compressed again": (gzip.compress(NOISE), "not a PNG or JPEG file"),
    "base64 as text": (base64.b64encode(NOISE), "not a PNG or JPEG file"),
    "a byte order mark first": (b"\xef\xbb\xbf" + NOISE, "not a PNG or JPEG file"),
    "a wrong checksum of the header": (NOISE[:29] + b"\0\0\0\0" + NOISE[33:], "not a PNG or JPEG file"),
    "no width": (header_of(0, 4), "not a PNG or JPEG file"),
    "the first bytes of a JPEG": (NOISE_JPEG[:20], "not a PNG or JPEG file"),
    "a JPEG of zeros": (NOISE_JPEG[:200] + b"\0" * 2000, "cannot be decoded"),
    "a flipped byte": (NOISE[:200] + bytes([NOISE[200] ^ 0xFF]) + NOISE[201:], "cannot be decoded"),
    "no pixels": (NOISE[:33] + NOISE[-12:], "cannot be decoded"),
    "a comment that is a bomb": (bomb_of_text(), "cannot be decoded"),
    "only the signature": (b"\x89PNG\r\n\x1a\n", "not a PNG or JPEG file"),
    "a header without pixels": (header_of(4, 4), "cannot be decoded"),
    "a truncated PNG": (encoded(Image.effect_noise((64, 64), 90))[:1500], "cannot be decoded"),
    "a truncated JPEG": (encoded(Image.effect_noise((64, 64), 90), "JPEG")[:900], "cannot be decoded"),
    "a bomb": (header_of(50_000, 50_000), "too many pixels; at most 16,777,216 are read"),
    "too many pixels": (header_of(4097, 4096), "4097 x 4096 pixels; at most 16,777,216 are read"),
    "animated": (
        encoded(drawn(), save_all=True, append_images=[drawn(colour=(0, 0, 0))]),
        "animated, with 2 frames",
    ),
}


@pytest.mark.parametrize("name", READ)
def test_every_form_of_a_picture_becomes_rgb(name: str) -> None:
    content, colour, size = READ[name]
    pixels = values(content)
    assert pixels.shape == (size[1], size[0], 3) and pixels.dtype == np.uint8
    assert (abs(pixels.astype(int) - colour) <= 2).all()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_picture_is_one_line(name: str) -> None:
    content, message = REFUSED[name]
    with pytest.raises(UserError) as refused:
        values(content)
    assert str(refused.value).startswith("image x: ") and message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_limit_is_4096_pixels_in_both_directions() -> None:
    assert MOST_PIXELS == 4096 * 4096
