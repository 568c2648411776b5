"""Validation of data with images: too many or too small ones set a row aside, and the table of images comes along."""

from io import BytesIO
from pathlib import Path
from random import Random

import pytest
from PIL import Image, ImageEnhance

from models.answers.answers import extract_answer
from models.base.errors import UserError
from models.base.images import IMAGES, name_of, read_images, write_images
from models.datasets.schema import arrow_schema, read_rows, write_rows
from models.datasets.validation import ValidationSettings
from tasks.data.validation import validate
from tests.support.tiny_vision import png

LARGE, SMALL = (png(Image.new("RGB", size, "red")) for size in ((32, 32), (32, 3)))


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    large, small = (f"<image:{name_of(content)}>" for content in (LARGE, SMALL))
    prompts = [
        "no image",
        f"{large} one",
        f"{large}{large} two",
        f"{large}{large}{large} three",
        f"{large}{small} small",
    ]
    rows = [
        {"id": f"p{number}", "prompt": prompt, "answer": "3", "level": 1, "tests": "", "entry_point": ""}
        for number, prompt in enumerate(prompts)
    ]
    write_rows(tmp_path / "data" / "problems_train.parquet", rows, arrow_schema("problems"))
    write_images(tmp_path / "data" / IMAGES, [LARGE, SMALL])
    return tmp_path


def test_rows_with_too_many_or_too_small_images_are_set_aside(folder: Path) -> None:
    settings = ValidationSettings(max_images=2, quarantine_share=0.5, min_label_share=0, max_label_share=1)
    report = validate(folder / "data", settings, words, extract_answer, folder / "out")  # type: ignore[arg-type]
    assert report.by_reason == {"the prompt has too many images": 1, "an image of the prompt is too small": 1}
    assert [row["id"] for row in read_rows(folder / "out" / "clean", "problems", "train")] == ["p0", "p1", "p2"]
    assert dict(read_images(folder / "out" / "clean" / IMAGES)) == {name_of(each): each for each in (LARGE, SMALL)}


def test_without_a_table_of_images_there_are_no_such_checks(folder: Path) -> None:
    settings = ValidationSettings(max_images=0, min_label_share=0, max_label_share=1)
    with_table = ValidationSettings(max_images=0, quarantine_share=0.5, min_label_share=0, max_label_share=1)
    with pytest.raises(UserError, match="the prompt has too many images"):
        validate(folder / "data", with_table, words, extract_answer, folder / "out")  # type: ignore[arg-type]
    (folder / "data" / IMAGES).unlink()
    report = validate(folder / "data", settings, words, extract_answer, folder / "out")  # type: ignore[arg-type]
    assert report.passed and not (folder / "out" / "clean" / IMAGES).exists()


def landscape(seed: int, size: int = 64) -> Image.Image:
    """Return a picture of soft blots, as photographs have."""
    blots = Image.frombytes("RGB", (8, 8), Random(seed).randbytes(192))
    return blots.resize((size, size), Image.Resampling.BICUBIC)


def encoded(picture: Image.Image, kind: str = "PNG", **options: int) -> bytes:
    file = BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def test_a_train_image_that_looks_like_a_held_out_one_is_set_aside(tmp_path: Path) -> None:
    held_out, other = landscape(0), landscape(1)
    turned_down = ImageEnhance.Brightness(held_out).enhance(0.8)
    images = {
        "itself": encoded(held_out),
        "scaled": encoded(held_out.resize((200, 150))),
        "compressed": encoded(held_out, "JPEG", quality=30),
        "darker": encoded(turned_down),
        "other": encoded(other),
        "turned": encoded(held_out.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
    }

    def row(name: str, content: bytes | None) -> dict[str, object]:
        reference = "" if content is None else f"<image:{name_of(content)}> "
        prompt = f"{reference}question about {name}"
        return {"id": name, "prompt": prompt, "answer": "3", "level": 1, "tests": "", "entry_point": ""}

    data = tmp_path / "data"
    rows = [*(row(name, content) for name, content in images.items()), row("text", None)]
    write_rows(data / "problems_train.parquet", rows, arrow_schema("problems"))
    gate = [row("gate", encoded(held_out, "PNG", compress_level=1))]
    write_rows(data / "problems_gate.parquet", gate, arrow_schema("problems"))
    write_images(data / IMAGES, [*images.values(), encoded(held_out, "PNG", compress_level=1)])
    loose = {"quarantine_share": 1.0, "min_label_share": 0, "max_label_share": 1}

    def kept(out: str, **settings: object) -> list[str]:
        chosen = ValidationSettings(**loose, **settings)  # type: ignore[arg-type]
        validate(data, chosen, words, extract_answer, tmp_path / out)  # type: ignore[arg-type]
        return [str(row["id"]) for row in read_rows(tmp_path / out / "clean", "problems", "train")]

    assert kept("near", image_distance=4) == ["other", "turned", "text"]
    assert kept("none") == [*images, "text"]
