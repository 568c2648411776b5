"""Images of a prepared data set: those that its rows refer to are carried along; a missing or broken one stops it."""

import json
from pathlib import Path

import pytest
from PIL import Image

from models.base.errors import UserError
from models.base.images import IMAGES, images_in, name_of, read_images, write_images
from models.datasets.prepare import prepare
from models.datasets.schema import TURNS, read_rows
from models.datasets.settings import DataSettings
from tests.support.tiny_vision import png

PICTURES = [png(Image.new("RGB", (4, 4), (number, 0, 0))) for number in range(40)]
UNKNOWN = [png(Image.new("RGB", (4, 4), (0, number, 7))) for number in range(40)]
"""Pictures that no table of these tests has."""


def write_problems(folder: Path, contents: list[bytes], images: list[bytes] | None) -> DataSettings:
    folder.mkdir()
    splits = ("train", "validation", "gate")
    rows = [
        {"prompt": f"<image:{name_of(content)}> how red", "answer": str(number), "split": splits[number % 3]}
        for number, content in enumerate(contents)
    ]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if images is not None:
        write_images(folder / IMAGES, images)
    return DataSettings(name="pictures", path=(folder,), format="kinds")


def test_the_images_that_rows_refer_to_are_carried_along_and_no_others(tmp_path: Path) -> None:
    settings = write_problems(tmp_path / "raw", PICTURES[:30], PICTURES)
    manifest = prepare(settings, tmp_path / "prepared")
    carried = dict(read_images(tmp_path / "prepared" / IMAGES))
    assert manifest["images"] == 30 and sorted(carried.values()) == sorted(PICTURES[:30])
    rows = [
        row for split in ("train", "validation", "gate") for row in read_rows(tmp_path / "prepared", "problems", split)
    ]
    assert {name for row in rows for name in images_in(row["prompt"])} == set(carried)


def test_a_missing_image_is_one_line_with_the_row(tmp_path: Path) -> None:
    unknown = "f" * 32
    settings = write_problems(tmp_path / "raw", PICTURES[:30], PICTURES[:30])
    with (tmp_path / "raw" / "problems.jsonl").open("a") as file:
        file.write(json.dumps({"prompt": f"<image:{unknown}> how red", "answer": "1", "split": "train"}) + "\n")
    with pytest.raises(UserError, match=rf"problems_train.parquet, row train-\d+: image {unknown}: no data set"):
        prepare(settings, tmp_path / "prepared")
    assert not (tmp_path / "prepared").exists()


def test_an_image_that_cannot_be_decoded_is_one_line_with_the_row(tmp_path: Path) -> None:
    broken = b"no picture at all"
    settings = write_problems(tmp_path / "raw", [*PICTURES[:30], broken], [*PICTURES[:30], broken])
    with pytest.raises(UserError, match=r"row \S+: image [0-9a-f]{32}: not a PNG or JPEG file"):
        prepare(settings, tmp_path / "prepared")


def test_without_a_table_of_images_nothing_changes(tmp_path: Path) -> None:
    settings = write_problems(tmp_path / "raw", UNKNOWN[:30], None)
    manifest = prepare(settings, tmp_path / "prepared")
    assert "images" not in manifest and not (tmp_path / "prepared" / IMAGES).exists()


def test_images_between_the_turns_of_a_demonstration_are_carried_along_and_unknown_names_there_are_text(
    tmp_path: Path,
) -> None:
    shown, unknown = name_of(PICTURES[35]), name_of(b"no such picture")
    settings = write_problems(tmp_path / "raw", PICTURES[:30], PICTURES)
    rows = [
        {"prompt": "how red", "completion": f"look{TURNS}<image:{shown}>{TURNS}7 <image:{unknown}>", "split": split}
        for split in ("train", "validation")
    ]
    (tmp_path / "raw" / "demonstrations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert prepare(settings, tmp_path / "prepared")["images"] == 31
    carried = {name for name, _ in read_images(tmp_path / "prepared" / IMAGES)}
    assert carried == {shown, *map(name_of, PICTURES[:30])}
