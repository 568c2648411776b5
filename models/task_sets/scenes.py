"""Questions about pictures of coloured shapes, whose answer is one word.

    <image:9f86...> what colour is the square      red
    <image:9f86...> from the red where is the blue      left

A picture has one to four shapes in its quarters, on white; place and size of a shape vary. A question refers to a shape
by one property that no other shape of the picture has, or by its quarter. The level is the kind of question: colour 1,
shape 2, count 3, position 4, relation 5. For each question, the answer is drawn first, evenly over those of its kind,
and then a picture with this answer: a policy that does not look at the picture is right in 20 to 25 % of the cases.
A picture belongs to one split with all of its questions.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import Field

from models.base.images import REFERENCE, reference_to
from models.base.pictures import png_of
from models.datasets.schema import SOUND, Split
from models.datasets.splits import split_by_hash
from models.task_sets.drawing import Task, TaskSettings

if TYPE_CHECKING:
    from PIL.Image import Image

Kind = Literal["colour", "shape", "count", "position", "relation"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of questions; the level of a question is its place here, from 1."""
COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 70, 220), "yellow": (235, 210, 40)}
SHAPES = ("square", "circle", "triangle", "cross")
PLACES = ("topleft", "topright", "bottomleft", "bottomright")
ANSWERS: dict[Kind, tuple[str, ...]] = {
    "colour": tuple(COLOURS),
    "shape": SHAPES,
    "count": ("0", "1", "2", "3", "4"),
    "position": PLACES,
    "relation": ("left", "right", "above", "below"),
}
"""Answers of each kind."""
SMALLEST, LARGEST = 8, 12
"""Width of a shape less one, in pixels of a picture of 32."""
Shape = tuple[str, str, int]
"""Colour, form and quarter of a shape."""
Square = tuple[int, int, int]
"""Left and top edge of the square around a shape, and its width less one, in pixels of a picture of 32."""
PixelBox = tuple[int, int, int, int]
"""Left, top, right and bottom edge, in pixels."""
Item = tuple[str, str, str]
"""Colour, form and place of a shape, in words."""
BETWEEN = " ; "
"""Text between two shapes of a description."""
Questions = dict[Kind, dict[str, list[str]]]
"""Kind of question -> answer -> questions."""


class PictureSettings(TaskSettings):
    """Common settings of the task sets about these pictures."""

    pixels: Annotated[int, Field(ge=32, le=1024, multiple_of=32)] = 32
    """Width and height of a picture."""
    pictures: Annotated[int, Field(ge=1, le=1_000_000)]
    """Number of pictures that prompts are drawn about, of all splits together."""

    def split_of(self, task: Task) -> Split:
        """Return the split of a prompt, which is that of its first picture."""
        return split_of_picture(task.prompt)


class ScenesSettings(PictureSettings):
    """The section `scenes` of params.yaml."""

    shares: dict[Kind, Annotated[float, Field(ge=0)]]
    """Weight of each kind of question."""

    def draw(self, random: Random) -> Task:
        """Draw a question: its kind by the shares, then its answer, then a picture and a wording."""
        (kind,) = random.choices(KINDS, [self.shares.get(each, 0.0) for each in KINDS])
        answer = random.choice(ANSWERS[kind])
        while True:
            shapes, _, reference = picture(self.seed, random.randrange(self.pictures), self.pixels)
            if answer in (texts := questions(shapes)[kind]):
                text = random.choice(texts[answer])
                return Task(f"{reference} {text}", answer, KINDS.index(kind) + 1, (caption_of(items_of(shapes)),))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return the answer, without a flaw."""
        return SOUND, (task.answer,)


def items_of(shapes: tuple[Shape, ...]) -> list[Item]:
    """Return the shapes of a picture, in the order of their quarters."""
    return [(colour, form, PLACES[quarter]) for colour, form, quarter in sorted(shapes, key=lambda shape: shape[2])]


def caption_of(items: list[Item]) -> str:
    """Write a description of shapes."""
    return BETWEEN.join(map(" ".join, items))


def items_in(caption: str) -> list[Item]:
    """Read the shapes of a description."""
    items: list[Item] = []
    for text in caption.split(BETWEEN):
        colour, form, place = text.split()
        items.append((colour, form, place))
    return items


def split_of_picture(prompt: str) -> Split:
    """Return the split of the picture that a prompt refers to."""
    reference = REFERENCE.search(prompt)
    assert reference is not None
    return split_by_hash(reference[0])


@lru_cache(maxsize=1 << 17)
def picture(seed: int, number: int, pixels: int) -> tuple[tuple[Shape, ...], tuple[Square, ...], str]:
    """Return the shapes of a picture, their squares and its reference; the same arguments give the same picture."""
    random = Random(f"{seed}/picture/{number}")
    shapes = scene(random)
    squares = squares_of(shapes, random)
    return shapes, squares, reference_to(png_of(painted(shapes, squares, pixels)))


def scene(random: Random) -> tuple[Shape, ...]:
    """Draw the shapes of a picture, no two with the same look.

    Half of the pictures have few colours or few forms, so that large counts occur.
    """
    count, every = random.randint(1, 4), list(COLOURS)
    colours = every if random.random() < 0.5 else random.sample(every, random.randint(1, 2))
    forms = list(SHAPES) if random.random() < 0.5 else random.sample(SHAPES, random.randint(1, 2))
    if len(colours) * len(forms) < count:
        colours, forms = (colours, list(SHAPES)) if random.random() < 0.5 else (every, forms)
    looks = random.sample([(colour, form) for colour in colours for form in forms], count)
    quarters = random.sample(range(4), count)
    return tuple((colour, form, quarter) for (colour, form), quarter in zip(looks, quarters, strict=True))


def squares_of(shapes: tuple[Shape, ...], random: Random) -> tuple[Square, ...]:
    """Choose a random width for each shape, and a random place in its quarter, in a picture of 32 pixels, [shapes]."""
    squares = []
    for _, _, quarter in shapes:
        wide = random.randint(SMALLEST, LARGEST)
        x, y = (16 * side + random.randint(1, 15 - wide) for side in (quarter % 2, quarter // 2))
        squares.append((x, y, wide))
    return tuple(squares)


def box_of(square: Square, pixels: int) -> PixelBox:
    """Return the box of a shape, given its square, in a picture with an edge of `pixels`."""
    scale = pixels // 32
    x, y, wide = square
    return scale * x, scale * y, scale * (x + wide), scale * (y + wide)


def painted(shapes: tuple[Shape, ...], squares: tuple[Square, ...], pixels: int = 32) -> Image:
    """Paint shapes on white.

    Args:
        shapes: colour, form and quarter of each.
        squares: result of `squares_of`.
        pixels: width and height of the picture.
    """
    from PIL import Image, ImageDraw

    scale = pixels // 32
    picture = Image.new("RGB", (pixels, pixels), "white")
    draw = ImageDraw.Draw(picture)
    for (colour, form, _), (x, y, wide) in zip(shapes, squares, strict=True):
        third, fill = wide // 3, COLOURS[colour]
        if form == "square":
            boxes = [(x, y, x + wide, y + wide)]
        elif form == "cross":
            boxes = [(x + third, y, x + wide - third, y + wide), (x, y + third, x + wide, y + wide - third)]
        else:
            boxes = []
        for box in boxes:
            draw.rectangle([scale * edge for edge in box], fill=fill)
        if form == "circle":
            draw.ellipse([scale * edge for edge in (x, y, x + wide, y + wide)], fill=fill)
        elif form == "triangle":
            corners = [(x, y + wide), (x + wide, y + wide), (x + wide // 2, y)]
            draw.polygon([(scale * across, scale * down) for across, down in corners], fill=fill)
    return picture


@lru_cache(maxsize=1 << 17)
def questions(shapes: tuple[Shape, ...]) -> Questions:
    """Return every question about a picture that has one right answer. The word that matters comes last."""
    made: Questions = {kind: {} for kind in KINDS}

    def add(kind: Kind, question: str, answer: str) -> None:
        made[kind].setdefault(answer, []).append(question)

    colours, forms = [shape[0] for shape in shapes], [shape[1] for shape in shapes]
    for colour, form, quarter in shapes:
        if forms.count(form) == 1:
            add("colour", f"what colour is the {form}", colour)
            add("position", f"where is the {form}", PLACES[quarter])
        if colours.count(colour) == 1:
            add("shape", f"what shape is the {colour}", form)
            add("position", f"where is the {colour}", PLACES[quarter])
        add("colour", f"what colour is the {PLACES[quarter]}", colour)
        add("shape", f"what shape is the {PLACES[quarter]}", form)
        for other in shapes:
            answer = _direction(quarter, other[2])
            if answer is None:
                continue
            for own, its, everywhere in ((colour, other[0], colours), (form, other[1], forms)):
                if everywhere.count(own) == 1 == everywhere.count(its):
                    add("relation", f"from the {its} where is the {own}", answer)
    for word in (*COLOURS, *SHAPES):
        add("count", f"how many {word}", str((colours + forms).count(word)))
    add("count", "how many shapes", str(len(shapes)))
    return made


def _direction(quarter: int, other: int) -> str | None:
    """Return where a quarter is as seen from another; None for the same one or the one across the diagonal."""
    same_row, same_column = quarter // 2 == other // 2, quarter % 2 == other % 2
    if same_row == same_column:
        return None
    if same_row:
        return "left" if quarter < other else "right"
    return "above" if quarter < other else "below"


SETTINGS = ScenesSettings
