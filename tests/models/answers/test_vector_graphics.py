"""Drawings in a subset of SVG: the pixels of every element, and texts that are refused."""

import numpy as np
import pytest

from models.answers.vector_graphics import UnreadableDrawingError, rendered

SIZE = (16, 12)


def inked(text: str, colour: tuple[int, int, int] = (0, 0, 0)) -> set[tuple[int, int]]:
    """Return the places of a colour, as column and row."""
    rows, columns = np.nonzero((np.asarray(rendered(text, SIZE)) == colour).all(-1))
    return set(zip(columns.tolist(), rows.tolist(), strict=True))


def block(left: int, top: int, right: int, bottom: int) -> set[tuple[int, int]]:
    return {(x, y) for x in range(left, right + 1) for y in range(top, bottom + 1)}


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ('<rect x="2" y="3" width="4" height="5"/>', block(2, 3, 6, 8)),
        ('<line x1="1" y1="2" x2="9" y2="2" stroke="black"/>', block(1, 2, 9, 2)),
        ('<polyline points="1,2 9,2 9,6" stroke="#000"/>', block(1, 2, 9, 2) | block(9, 2, 9, 6)),
        ('<polygon points="2,2 6,2 6,5 2,5" fill="black"/>', block(2, 2, 6, 5)),
        ('<svg viewBox="0 0 32 24"><rect x="4" y="6" width="8" height="10"/></svg>', block(2, 3, 6, 8)),
        ('<svg xmlns="http://www.w3.org/2000/svg"><g><rect x="2" width="4" height="5"/></g></svg>', block(2, 0, 6, 5)),
    ],
)  # fmt: skip
def test_elements_cover_their_pixels(text: str, places: set[tuple[int, int]]) -> None:
    assert inked(text) == places


def test_circles_and_ellipses_are_within_their_boxes_and_symmetric() -> None:
    circle = inked('<circle cx="8" cy="6" r="4" fill="red"/>', (255, 0, 0))
    assert circle <= block(4, 2, 12, 10) and {(4, 6), (12, 6), (8, 2), (8, 10)} <= circle
    assert circle == {(16 - x, y) for x, y in circle} == {(x, 12 - y) for x, y in circle}
    assert (4, 2) not in circle
    assert inked('<ellipse cx="8" cy="6" rx="4" ry="4" fill="red"/>', (255, 0, 0)) == circle


def test_later_elements_cover_earlier_ones_and_edges_have_their_own_colour() -> None:
    text = '<rect x="0" y="0" width="9" height="9" fill="red"/><rect x="2" y="2" width="3" height="3" fill="blue"/>'
    assert inked(text, (0, 0, 255)) == block(2, 2, 5, 5)
    assert inked(text, (255, 0, 0)) == block(0, 0, 9, 9) - block(2, 2, 5, 5)
    frame = '<rect x="1" y="1" width="4" height="4" fill="none" stroke="rgb(0, 128, 0)"/>'
    assert inked(frame, (0, 128, 0)) == block(1, 1, 5, 5) - block(2, 2, 4, 4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "nothing is drawn"),
        ("a red square", "nothing is drawn"),
        ('<rect x="1" y="1" width="0" height="4"/>', "nothing is drawn"),
        ('<rect width="4" height="4" fill="none"/>', "nothing is drawn"),
        ('<polygon points="1,1 2,2"/>', "nothing is drawn"),
        ('<path d="M0 0 L9 9"/>', "nothing is drawn"),
        ('<rect x="1" y="1" width="4" height="4"', "no XML"),
        ('<rect width="1e9" height="4"/>', "a coordinate above 10,000"),
        ("<rect/>" * 501, "more than 500 elements"),
        (" " * 20_001, "more than 20,000 characters"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><rect width="4" height="4"/>', "declarations are not read"),
        ('<?xml version="1.0"?><rect width="4" height="4"/>', "declarations are not read"),
        ('<rect width="4" height="4"/></drawing><drawing>', "no XML"),
    ],
)
def test_what_cannot_be_drawn_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UnreadableDrawingError, match=reason):
        rendered(text, SIZE)
