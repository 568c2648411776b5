"""The table of images next to the rows of a prepared data set: those that its prompts refer to, each decodable."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

from models.base.errors import UserError
from models.base.images import IMAGES, content_of, images_in, open_images, write_images
from models.base.pictures import decoded
from models.datasets.schema import PIECE_ROWS


def carried_images(sources: Iterable[Path], folder: Path) -> int:
    """Write the images that the rows of a folder refer to, next to the rows. Returns their number.

    Without a table of images in the sources, references are text like any other, and nothing is written.

    Args:
        sources: folders that may have a table of images.
        folder: folder with the rows, whose files are complete.

    Raises:
        UserError: a row refers to an image that no source has, or an image cannot be decoded; the message names it.
    """
    tables = [source for source in sources if (source / IMAGES).is_file()]
    if not tables:
        return 0
    for source in tables:
        open_images(source)
    contents: dict[str, bytes] = {}
    for file in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(PIECE_ROWS, columns=["id", "prompt"]):
            for name, prompt in zip(*(batch.column(column).to_pylist() for column in ("id", "prompt")), strict=True):
                for image in images_in(prompt):
                    if image in contents:
                        continue
                    place = f"{file.name}, row {name}"
                    try:
                        contents[image] = content_of(image)
                    except UserError as error:
                        raise UserError(f"{place}: {error}") from None
                    decoded(contents[image], f"{place}: image {image}")
    write_images(folder / IMAGES, contents.values())
    return len(contents)


def copy_images(source: Path, folder: Path) -> None:
    """Copy the table of images from one folder of prepared data to another, if there is one."""
    if (source / IMAGES).is_file():
        shutil.copyfile(source / IMAGES, folder / IMAGES)
