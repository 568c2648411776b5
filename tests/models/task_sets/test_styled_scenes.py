"""The task set `styled_scenes`: styles differ, keep what a question is about, and training has only its own."""

import numpy as np
import pytest

from models.base.images import images_in
from models.task_sets.drawing import draw_tasks
from models.task_sets.scenes import picture
from models.task_sets.styled_scenes import STYLES, Style, StyledScenesSettings, in_style, styled

SETTINGS = StyledScenesSettings(
    problems={"train": 300, "validation": 150, "gate": 60},
    demonstrations={"train": 300},
    pictures=600,
    shares={"colour": 1, "shape": 1, "count": 1, "position": 1, "relation": 1},
    train=("plain", "inverted"),
)


def test_training_has_its_styles_and_the_other_splits_have_all() -> None:
    levels = {split: {task.level for task in draw_tasks(SETTINGS, split)} for split in ("train", "validation")}
    assert levels == {"train": {1, 2}, "validation": set(range(1, 9))}


def test_a_picture_is_in_one_split_in_all_of_its_styles() -> None:
    plain = [{task.steps[-1] for task in draw_tasks(SETTINGS, split)} for split in ("train", "validation", "gate")]
    assert not plain[0] & plain[1] and not plain[0] & plain[2] and not plain[1] & plain[2]


def test_the_styles_of_a_picture_differ_and_are_the_same_each_time() -> None:
    _, _, reference = picture(1, 0, 32)
    (name,) = images_in(reference)
    shown = [styled(name, style) for style in STYLES]
    assert len(set(shown)) == len(STYLES) and shown[0] == reference
    styled.cache_clear()
    assert shown == [styled(name, style) for style in STYLES]


@pytest.mark.parametrize(
    ("style", "middle", "corner"),
    [
        ("plain", (200, 0, 0), (255, 255, 255)),
        ("inverted", (200, 0, 0), (0, 0, 0)),
        ("outlined", (255, 255, 255), (255, 255, 255)),
        ("faded", (227.5, 127.5, 127.5), (255, 255, 255)),
        ("dark", (100, 0, 0), (150, 150, 150)),
        ("striped", (200, 0, 0), (255, 255, 255)),
        ("tinted", (200, 0, 0), (190, 210, 255)),
    ],
)
def test_pixels_by_hand(style: Style, middle: tuple[float, ...], corner: tuple[float, ...]) -> None:
    pixels = np.full((9, 9, 3), 255.0)
    pixels[2:7, 2:7] = (200, 0, 0)
    made = in_style(pixels, style, np.random.default_rng(0))
    assert tuple(made[4, 4]) == middle and tuple(made[0, 0]) == corner
    assert tuple(made[2, 4]) == (tuple(middle) if style != "outlined" else (200, 0, 0))
    if style == "striped":
        assert tuple(made[3, 4]) == (255, 255, 255)


def test_noise_is_bounded() -> None:
    pixels = np.full((9, 9, 3), 128.0)
    made = in_style(pixels, "noisy", np.random.default_rng(0))
    assert 20 < abs(made - pixels).mean() < 40 and abs(made - pixels).max() <= 60
