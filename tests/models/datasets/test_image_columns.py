"""Images in a user's rows: every form gives the same reference, and what cannot be read is one line with its place."""

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from models.base.errors import UserError
from models.base.images import IMAGES, name_of, read_images, reference_to
from models.datasets.image_columns import with_images
from models.datasets.inspection import inspect
from models.datasets.prepare import prepare
from models.datasets.raw import RawRow
from models.datasets.schema import read_rows
from models.datasets.settings import DataSettings
from tests.support.tiny_vision import png

ONE, OTHER = (png(Image.new("RGB", (4, 4), colour)) for colour in ("red", "blue"))
FIRST, SECOND = reference_to(ONE), reference_to(OTHER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "one.png").write_bytes(ONE)
    (tmp_path / "other.png").write_bytes(OTHER)
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


def read(folder: Path, prompt: str = "what is it", **columns: Any) -> str:
    return with_images(RawRow(folder / "rows.jsonl", 7, columns), prompt)


@pytest.mark.parametrize(
    "value",
    [
        "pictures/one.png",
        ["pictures/one.png"],
        ONE,
        {"bytes": ONE, "path": None},
        {"bytes": None, "path": "pictures/one.png"},
        f"data:image/png;base64,{base64.b64encode(ONE).decode()}",
    ],
    ids=["path", "list", "bytes", "struct of bytes", "struct of a path", "data URL"],
)
@pytest.mark.parametrize("column", ["image", "images"])
def test_every_form_of_an_image_gives_the_same_prompt(folder: Path, column: str, value: Any) -> None:
    assert read(folder, **{column: value}) == f"{FIRST} what is it"


def test_references_replace_placeholders_in_order_or_come_first(folder: Path) -> None:
    both = ["pictures/one.png", "other.png"]
    assert read(folder, images=both) == f"{FIRST} {SECOND} what is it"
    assert read(folder, "left <image> and right <image>?", images=both) == f"left {FIRST} and right {SECOND}?"
    assert read(folder, image=None, images=[]) == "what is it"
    assert read(folder, "<image> stays text without images", image="") == "<image> stays text without images"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": "missing.png"}, "column 'image': missing.png cannot be read (No such file or directory)"),
        ({"image": "pictures"}, "column 'image': pictures cannot be read (Is a directory)"),
        ({"image": "/etc/passwd"}, "column 'image': /etc/passwd is outside the folder of the file"),
        ({"image": "../one.png"}, "column 'image': ../one.png is outside the folder of the file"),
        ({"image": "https://example.org/one.png"}, "addresses are not fetched; give the file"),
        ({"image": "data:image/png;base64,???"}, "column 'image' holds a data URL that is not base64"),
        ({"image": "data:image/svg+xml,<svg/>"}, "column 'image' holds a data URL that is not base64"),
        ({"image": "notes.txt"}, "column 'image': not a PNG or JPEG file"),
        ({"images": ["pictures/one.png", 3]}, "column 'images' holds no image: give a path, a data URL or bytes"),
        ({"images": [{"bytes": None, "path": None}]}, "column 'images' holds no image"),
        ({"image": ONE[:50]}, "column 'image': "),
        ({"image": "a\0b"}, "column 'image': a"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_file_row_and_column(
    folder: Path, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        read(folder, **columns)
    assert str(refused.value).startswith(f"{folder / 'rows.jsonl'}, line 7: ")
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_another_number_of_placeholders_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="the prompt has 2 placeholders <image>, and the row has 1 images"):
        read(folder, "<image> or <image>", image="other.png")


def written(folder: Path, rows: list[dict[str, Any]]) -> DataSettings:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return DataSettings(
        name="seen",
        path=(folder / "rows.jsonl",),
        format="demonstrations",
        validation_share=0.3,
        gate_share=0.3,
    )


def test_a_users_file_is_prepared_with_its_images(folder: Path) -> None:
    message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " what is it"}]}
    reply = {"role": "assistant", "content": "a square"}
    rows: list[dict[str, Any]] = []
    for number in range(30):
        Image.new("RGB", (4, 4), (number, 9, 9)).save(folder / f"{number}.png")
        rows.append({"messages": [message, reply], "images": [f"{number}.png"]})
    manifest = prepare(written(folder, rows), folder / "prepared")
    carried = dict(read_images(folder / "prepared" / IMAGES))
    assert manifest["images"] == 30 == len(carried) and "unread" not in manifest
    prompts = {
        row["prompt"]
        for split in ("train", "validation")
        for row in read_rows(folder / "prepared", "demonstrations", split)
    }
    assert prompts <= {f"<image:{name}> what is it" for name in carried} and len(prompts) > 10


def test_an_inspection_shows_the_reference_and_counts_the_column_as_read(folder: Path) -> None:
    rows = [{"prompt": "what is it", "completion": "a square", "image": "other.png"}]
    shown = inspect(written(folder, rows))
    assert shown.columns["image"] == "image" and not shown.unread and not shown.refused
    assert shown.first["demonstrations"]["prompt"] == f"{SECOND} what is it"


def test_a_file_of_the_hub_has_its_images_in_a_column(folder: Path) -> None:
    pictures = [png(Image.new("RGB", (4, 4), (9, number, 9))) for number in range(30)]
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table(
        {
            "prompt": ["what is it"] * 30,
            "completion": ["a square"] * 30,
            "image": pa.array([{"bytes": content, "path": "x.png"} for content in pictures], struct),
        }
    )
    pq.write_table(table, folder / "rows.parquet")
    prepare(DataSettings(name="seen", path=(folder / "rows.parquet",), format="demonstrations"), folder / "prepared")
    assert set(dict(read_images(folder / "prepared" / IMAGES))) == {name_of(content) for content in pictures}


def test_a_broken_image_stops_the_preparation_and_leaves_nothing(folder: Path) -> None:
    rows = [{"prompt": f"what is it {number}", "completion": "a square", "image": "other.png"} for number in range(30)]
    rows[17]["image"] = "notes.txt"
    with pytest.raises(UserError, match=r"rows.jsonl, line 18: column 'image': not a PNG or JPEG file"):
        prepare(written(folder, rows), folder / "prepared")
    assert not (folder / "prepared").exists()
