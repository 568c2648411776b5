"""The blind control: problems with another picture or a blank one, all else equal."""

import numpy as np
import pytest

from models.base.errors import UserError
from models.base.images import content_of, images_in, spans_of, without_images
from models.base.pictures import decoded
from models.evaluation.other_images import with_images_shown
from models.method.problem import Problem
from models.text.encoding import Codec
from tests.support.tiny_vision import rows_about_scenes, tiny_vision_policy

ROWS = rows_about_scenes(pictures=4, each=2)


@pytest.fixture(scope="module")
def codec() -> Codec:
    return tiny_vision_policy()[1]


@pytest.fixture(scope="module")
def problems(codec: Codec) -> list[Problem]:
    rows = codec.prompts([text for text, _ in ROWS])
    return [
        Problem(f"p{number}", text, answer, tokens=tuple(ids))
        for number, ((text, answer), ids) in enumerate(zip(ROWS, rows, strict=True))
    ]


def test_the_own_pictures_are_the_problems_themselves(problems: list[Problem], codec: Codec) -> None:
    assert with_images_shown(problems, codec, "own") == problems


@pytest.mark.parametrize("shown", ["another", "blank"])
def test_only_the_picture_changes(problems: list[Problem], codec: Codec, shown: str) -> None:
    changed = with_images_shown(problems, codec, shown)  # type: ignore[arg-type]
    for before, after in zip(problems, changed, strict=True):
        assert (before.id, before.answer) == (after.id, after.answer)
        assert without_images(before.prompt) == without_images(after.prompt)
        assert images_in(before.prompt) != images_in(after.prompt)
        assert [span.name for span in spans_of(after.tokens)] == images_in(after.prompt)
        texts = [[token for token in each.tokens if token >= 0] for each in (before, after)]
        assert texts[0] == texts[1]


def test_another_is_the_next_problems_picture_and_blank_is_white(problems: list[Problem], codec: Codec) -> None:
    own = [images_in(problem.prompt) for problem in problems]
    another = [images_in(problem.prompt) for problem in with_images_shown(problems, codec, "another")]
    assert another == [own[place] for place in (2, 2, 4, 4, 6, 6, 0, 0)]
    (blank,) = {name for each in with_images_shown(problems, codec, "blank") for name in images_in(each.prompt)}
    assert (np.asarray(decoded(content_of(blank), blank)) == 255).all()


def test_without_pictures_there_is_no_control(problems: list[Problem], codec: Codec) -> None:
    text = [Problem("p", "how many shapes", "1")]
    with pytest.raises(
        UserError, match=r"evaluation\.images: blank, but no prompt of the held-out problems has an image"
    ):
        with_images_shown(text, codec, "blank")
    with pytest.raises(UserError, match="all held-out problems have the same image"):
        with_images_shown(problems[:2], codec, "another")
