"""Derivatives of polynomials, whose terms may have any order: right answers may differ as text.

    derive 3 x ^ 2 + 5 x + 7        #### 6 x + 5        #### 5 + 6 x

The flaws of demonstrations: `kept`, the exponents decrease by one but multiply no coefficient; `constant`, the
constant is kept. A problem's level is the polynomial's degree.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings


class DerivativesSettings(TaskSettings):
    """The section `derivatives` of params.yaml."""

    largest: Annotated[int, Field(ge=1, le=20)]
    """Largest coefficient."""
    kept: Share
    """Share of the demonstrations whose exponents multiply no coefficient."""
    constant: Share
    """Share of the others that keep the constant."""

    def draw(self, random: Random) -> Task:
        """Draw a polynomial of degree 2 or 3 with a constant, and its derivative."""
        degree = random.randint(2, 3)
        terms = {power: random.randint(1, self.largest) for power in range(degree, -1, -1)}
        derived = {power - 1: power * factor for power, factor in terms.items() if power}
        return Task(f"derive {_written(terms)}", _written(derived), degree, (f"#### {_written(derived)}",))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a derivative, sound or flawed, with its terms in the order of the polynomial or reversed."""
        terms = read(task.prompt.removeprefix("derive "))
        derived = {power - 1: power * factor for power, factor in terms.items() if power}
        flaw = SOUND
        if random.random() < self.kept:
            flaw, derived = "kept", {power - 1: factor for power, factor in terms.items() if power}
        elif random.random() < self.constant:
            flaw = "constant"
            derived = derived | {0: derived[0] + terms[0]}
        if random.random() < 0.5:
            derived = dict(reversed(derived.items()))
        return flaw, (f"#### {_written(derived)}",)


def read(text: str) -> dict[int, int]:
    """Return the coefficients of a polynomial by their powers."""
    terms = {}
    for term in text.split(" + "):
        factor, *rest = term.split()
        terms[0 if not rest else int(rest[-1]) if "^" in rest else 1] = int(factor)
    return terms


def _written(terms: Mapping[int, int]) -> str:
    signs = {0: "", 1: " x"}
    return " + ".join(f"{factor}{signs.get(power, f' x ^ {power}')}" for power, factor in terms.items())


SETTINGS = DerivativesSettings
