"""The drawn grids of `masked_walks`, with names of goals that only held-out splits have.

    <image:9f86...> walk to the circle at <image:77b2...>      r | <image:07aa...> | d

The second picture is a mask with the place of the goal, as a detector that knows all names would give it. Training
prompts name goals by the words of `known`, and those of the other splits by all other colours and forms.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

from pydantic import Field

from models.agents.play.grid import Cell
from models.task_sets.drawn_walks import DrawnWalksSettings
from models.task_sets.masked_walks import mask_of
from models.task_sets.scenes import split_of_picture


class NovelWalksSettings(DrawnWalksSettings):
    """The section `novel_walks` of params.yaml."""

    known: Annotated[frozenset[str], Field(min_length=1)]
    """Colours and forms that name goals in training."""

    def _named(self, named: dict[int, list[str]], reference: str) -> dict[int, list[str]]:
        trains = split_of_picture(reference) == "train"
        kept = {number: [word for word in words if (word in self.known) == trains] for number, words in named.items()}
        return {number: words for number, words in kept.items() if words}

    def _prompt(self, random: Random, reference: str, names: list[str], goal: Cell) -> str:
        return f"{super()._prompt(random, reference, names, goal)} at {mask_of(goal, self.pixels)}"


SETTINGS = NovelWalksSettings
