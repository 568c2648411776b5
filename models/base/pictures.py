"""Images as files: a file becomes a picture of 8-bit RGB values, or is refused by an error of one line; and back."""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import TYPE_CHECKING

from models.base.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG")
MOST_PIXELS = 1 << 24
"""Largest number of pixels of an image, 16 million: a small file can contain a picture that fills the memory."""

_TOO_MANY = f"at most {MOST_PIXELS:,} are read, scale it down"


def decoded(content: bytes, place: str) -> Image:
    """Decode an image to RGB: turned as its EXIF data state, over white where it is transparent, 8 bits a channel.

    Args:
        content: bytes of a PNG or JPEG file.
        place: name of the image, for the error message.

    Raises:
        UserError: it is not a PNG or JPEG file, or it is broken, animated, or has too many pixels.
    """
    from PIL import ImageOps

    opened = _opened(content, place)
    try:
        frames = int(getattr(opened, "n_frames", 1))
        if frames > 1 and opened.format != "MPO":  # a telephone's JPEG file; its first frame is the photograph
            raise UserError(f"{place}: animated, with {frames} frames; give one picture for each")
        opened.load()
        picture = ImageOps.exif_transpose(opened)
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise UserError(f"{place}: cannot be decoded ({error})") from None
    return _in_colours(picture)


def size_of(content: bytes, place: str) -> tuple[int, int]:
    """Return width and height of an image as its file states them, without decoding it.

    Args:
        content: bytes of a PNG or JPEG file.
        place: name of the image, for the error message.

    Raises:
        UserError: it is not a PNG or JPEG file, or has too many pixels.
    """
    return _opened(content, place).size


def perceptual_hash(content: bytes, place: str) -> int:
    """Return 64 bits that change little if a picture is scaled, compressed again or made brighter (difference hash).

    Each bit states whether a pixel of the picture, scaled to 9 x 8 grey values, is darker than its neighbour on the
    right.

    Args:
        content: bytes of a PNG or JPEG file.
        place: name of the image, for the error message.

    Raises:
        UserError: see `decoded`.
    """
    from PIL import Image

    grey = decoded(content, place).convert("L").resize((9, 8), Image.Resampling.BOX)
    values = list(grey.tobytes())
    bits = [values[9 * row + column] < values[9 * row + column + 1] for row in range(8) for column in range(8)]
    return sum(bit << number for number, bit in enumerate(bits))


def png_of(picture: Image) -> bytes:
    """Return the bytes of a PNG file with a picture; equal pictures give equal bytes."""
    content = BytesIO()
    picture.save(content, "PNG")
    return content.getvalue()


def _opened(content: bytes, place: str) -> Image:
    """Open an image without decoding it; see `size_of`."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit below is lower
            opened: Image.Image = Image.open(BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        raise UserError(f"{place}: not a PNG or JPEG file") from None
    except Image.DecompressionBombError:
        raise UserError(f"{place}: too many pixels; {_TOO_MANY}") from None
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise UserError(f"{place}: cannot be decoded ({error})") from None
    width, height = opened.size
    if width * height > MOST_PIXELS:
        raise UserError(f"{place}: {width} x {height} pixels; {_TOO_MANY}")
    return opened


def _in_colours(picture: Image) -> Image:
    """Return the picture as 8-bit RGB, over white where it is transparent."""
    from PIL import Image

    if picture.mode.startswith("I") or picture.mode == "F":  # 16 bits a channel: the upper 8 are kept
        picture = picture.point(lambda value: value / 256).convert("L")
    if "A" in picture.getbands() or "transparency" in picture.info:
        whole = picture.convert("RGBA")
        white = Image.new("RGBA", whole.size, "white")
        return Image.alpha_composite(white, whole).convert("RGB")
    return picture.convert("RGB")
