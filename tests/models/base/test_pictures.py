"""Decoding of images: every form of a picture becomes the same RGB values, and every broken file one line."""

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from models.base.errors import UserError
from models.base.pictures import MOST_PIXELS, decoded


def encoded(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def drawn(mode: str = "RGB", colour: Any = (200, 30, 60), size: tuple[int, int] = (6, 4)) -> Image.Image:
    return Image.new(mode, size, colour)


def values(content: bytes, size: int | None = None) -> np.ndarray[Any, Any]:
    return np.asarray(decoded(content, "image x", size))


def header_of(width: int, height: int) -> bytes:
    """Make a PNG file that states a size and has no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


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


def test_a_picture_is_scaled_to_the_size_and_stays_as_it_is_at_its_own() -> None:
    exact = Image.effect_noise((8, 8), 90).convert("RGB")
    assert (values(encoded(exact), 8) == np.asarray(exact)).all()
    assert values(encoded(drawn(size=(40, 20))), 8).shape == (8, 8, 3)
    assert MOST_PIXELS == 4096 * 4096
