"""Images in texts and among token ids: names are those of the content, and ids lead back to the image."""

from pathlib import Path

import pytest

from models.base.errors import UserError
from models.base.images import (
    IMAGES,
    ROUNDS_KEPT,
    begin_round_of_drawing,
    content_of,
    drawn_among,
    drawn_reference,
    image_ids,
    images_in,
    known_content,
    name_of,
    open_images,
    read_images,
    reference_to,
    spans_of,
    without_images,
    write_images,
)

ONE, OTHER = b"content of one image", b"content of another image"


def test_equal_contents_have_equal_references_and_others_do_not() -> None:
    assert reference_to(ONE) == reference_to(bytes(ONE)) != reference_to(OTHER)
    assert images_in(f"a {reference_to(ONE)} b {reference_to(OTHER)} c") == [name_of(ONE), name_of(OTHER)]
    assert content_of(name_of(ONE)) == ONE
    assert without_images(f"{reference_to(ONE)} what colour") == "what colour"
    assert without_images("  plain text <image:short> ") == "  plain text <image:short> "


def test_ids_lead_back_to_their_images_next_to_each_other_too() -> None:
    first_name, other = (name_of(content) for content in (ONE, OTHER))
    reference_to(ONE)
    reference_to(OTHER)
    first, second = image_ids(first_name, 4), image_ids(other, 7)
    assert all(-(2**31) <= token < 0 for token in (*first, *second))
    assert len({*first, *second}) == 11
    spans = spans_of([5, *first, *first, 3, *second, *first, 9])
    assert [(span.start, span.length, span.name) for span in spans] == [
        (1, 4, first_name),
        (5, 4, first_name),
        (10, 7, other),
        (17, 4, first_name),
    ]
    assert spans_of([1, 2, 3]) == []


def test_an_id_without_an_image_is_refused() -> None:
    with pytest.raises(UserError, match="token id -12 belongs to no image"):
        spans_of([3, -12, 4])
    with pytest.raises(UserError, match=r"image 0{32}: no data set that was read has it in images.parquet"):
        image_ids("0" * 32, 2)


def test_a_table_is_read_as_written_each_image_once_and_without_regard_to_order(tmp_path: Path) -> None:
    for folder, contents in (("a", [ONE, OTHER, ONE]), ("b", [OTHER, ONE])):
        write_images(tmp_path / folder / IMAGES, contents)
    assert (tmp_path / "a" / IMAGES).read_bytes() == (tmp_path / "b" / IMAGES).read_bytes()
    assert dict(read_images(tmp_path / "a" / IMAGES)) == {name_of(ONE): ONE, name_of(OTHER): OTHER}
    fresh = b"never named before"
    write_images(tmp_path / "c" / IMAGES, [fresh])
    open_images(tmp_path / "c")
    assert content_of(name_of(fresh)) == fresh
    open_images(tmp_path / "no such folder")


def test_a_table_whose_names_are_wrong_or_that_is_broken_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"name": ["0" * 32], "content": [ONE]}), tmp_path / IMAGES)
    with pytest.raises(UserError, match=r"the content of image 0{32} is not what its name states"):
        open_images(tmp_path)
    (tmp_path / IMAGES).write_bytes(b"PAR1")
    with pytest.raises(UserError, match="not a readable table of images"):
        open_images(tmp_path)


def test_images_that_an_environment_drew_are_forgotten_after_some_rounds_unless_they_are_kept() -> None:
    kept, lost, again = b"kept while it is remembered", b"drawn once", b"drawn in two rounds"
    in_table = b"drawn, but in a table"
    reference_to(in_table)
    for content in (kept, lost, again, in_table):
        assert drawn_reference(content) == f"<image:{name_of(content)}>"
    ids = image_ids(name_of(kept), 4)
    assert drawn_among([3, *ids, *image_ids(name_of(in_table), 2)]) == {name_of(kept): kept}
    begin_round_of_drawing()
    drawn_reference(again)
    for _ in range(ROUNDS_KEPT - 1):
        begin_round_of_drawing([[5, *ids]])
    known = [known_content(name_of(content)) is not None for content in (kept, lost, again, in_table)]
    assert known == [True, False, True, True]
    begin_round_of_drawing()
    assert known_content(name_of(again)) is None and spans_of(ids)[0].name == name_of(kept)
    with pytest.raises(UserError, match="no data set that was read has it"):
        content_of(name_of(lost))
