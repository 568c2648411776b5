"""Problems with another picture than their own: the blind control of policies that read images.

    own        the problem's picture
    another    that of the next problem about another picture
    blank      a white picture of the same size

A policy that answers from what it sees loses its accuracy without the own picture. One that answers from what is
frequent does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from models.base.errors import UserError
from models.base.images import content_of, images_in, reference_to
from models.base.pictures import decoded, png_of
from models.evaluation.wrapped import with_prompts

if TYPE_CHECKING:
    from models.method.problem import Problem
    from models.text.encoding import Codec

ShownImages = Literal["own", "another", "blank"]


def with_images_shown(problems: Sequence[Problem], codec: Codec, shown: ShownImages) -> list[Problem]:
    """Return the problems with other pictures in their prompts, [problems]; answers and texts stay.

    Args:
        problems: problems, some with images in their prompts.
        codec: encodes the prompts for the policy.
        shown: which pictures they get.

    Raises:
        UserError: no problem has a picture, or all have the same one and another is wanted.
    """
    if shown == "own":
        return list(problems)
    named = [images_in(problem.prompt) for problem in problems]
    if not any(named):
        raise UserError(f"evaluation.images: {shown}, but no prompt of the held-out problems has an image")
    texts = []
    for place, problem in enumerate(problems):
        text = problem.prompt
        for number, name in enumerate(named[place]):
            other = _blank(name) if shown == "blank" else f"<image:{_next_other(named, place, number)}>"
            text = text.replace(f"<image:{name}>", other, 1)
        texts.append(text)
    return with_prompts(problems, texts, codec)


def _next_other(named: Sequence[Sequence[str]], place: int, number: int) -> str:
    """Return the name of the first image of a later problem, cyclically, that this problem does not have."""
    for step in range(1, len(named)):
        there = [name for name in named[(place + step) % len(named)] if name not in named[place]]
        if there:
            return there[number % len(there)]
    raise UserError("evaluation.images: another, but all held-out problems have the same image; measure more of them")


def _blank(name: str) -> str:
    """Return the reference to a white picture of the size of an image."""
    from PIL import Image

    size = decoded(content_of(name), f"image {name}").size
    return reference_to(png_of(Image.new("RGB", size, "white")))
