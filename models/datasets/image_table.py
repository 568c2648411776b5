"""The table of images next to the rows of a prepared data set: those that the rows refer to, each decodable."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

from models.base.errors import UserError
from models.base.images import IMAGES, content_of, images_in, known_content, open_table, write_images
from models.base.pictures import decoded
from models.datasets.schema import PIECE_ROWS


def images_of_shard(shard: Path) -> Path:
    """Return the file for the images that the rows of a shard refer to."""
    return shard.with_suffix(".images.parquet")


def write_shard_images(shard: Path, prompts: Iterable[str]) -> None:
    """Write the images that prompts refer to and this process knows, next to a shard; nothing if there are none."""
    names = {name for prompt in prompts for name in images_in(prompt)}
    if contents := [content for name in sorted(names) if (content := known_content(name)) is not None]:
        write_images(images_of_shard(shard), contents)


def carried_images(tables: Iterable[Path], folder: Path) -> int:
    """Write the images that the rows of a folder refer to, next to the rows. Returns their number.

    Without any table of images, references are text like any other, and nothing is written.

    Args:
        tables: files that may have images.
        folder: folder with the rows, whose files are complete.

    Raises:
        UserError: a row refers to an image that no source has, or an image cannot be decoded; the message names it.
    """
    existing = [table for table in tables if table.is_file()]
    if not existing:
        return 0
    for table in existing:
        open_table(table)
    contents: dict[str, bytes] = {}
    for file in sorted(folder.glob("*.parquet")):
        parquet = pq.ParquetFile(file)
        texts = [column for column in ("prompt", "completion") if column in parquet.schema_arrow.names]
        for batch in parquet.iter_batches(PIECE_ROWS, columns=["id", *texts]):
            for row in batch.to_pylist():
                place = f"{file.name}, row {row['id']}"
                for name in images_in(row["prompt"]):
                    _add_image(name, place, contents)
                for name in filter(known_content, images_in(row.get("completion", ""))):  # else it is plain text
                    _add_image(name, place, contents)
    write_images(folder / IMAGES, contents.values())
    return len(contents)


def _add_image(name: str, place: str, contents: dict[str, bytes]) -> None:
    """Add an image to `contents`, if it is not there yet."""
    if name in contents:
        return
    try:
        contents[name] = content_of(name)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
    decoded(contents[name], f"{place}: image {name}")


def copy_images(source: Path, folder: Path) -> None:
    """Copy the table of images from one folder of prepared data to another, if there is one."""
    if (source / IMAGES).is_file():
        shutil.copyfile(source / IMAGES, folder / IMAGES)
