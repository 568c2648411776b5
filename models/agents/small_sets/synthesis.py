"""Formulas of three and four inputs; those of four inputs are not demonstrated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from models.agents.environments.synthesis import Synthesis
from models.agents.play.boolean_formulas import (
    REWRITINGS,
    Formula,
    joined,
    least_size,
    parse_formula,
    rewritten,
    size_of,
    written,
)
from models.agents.small_sets.rows import SmallSet, SmallTask


@dataclass(frozen=True)
class SynthesisSet(SmallSet):
    """Random formulas that can be shortened, in two families: few inputs, and more inputs with inverted parts."""

    sound: float = 0.15
    """Share of the demonstrations whose rewritings reach the fewest gates; the others are random."""

    def draw(self, random: Random) -> SmallTask:
        """Draw a formula that at least one sequence shortens by a third."""
        while True:
            novel = random.random() < 0.5
            names = "wxyz" if novel else "abc"
            parts = [self._clause(random, names, "and", novel) for _ in range(3)]
            formula = joined("or", parts)
            if size_of(formula) < 4 or len(written(formula)) > 80:
                continue
            if least_size(formula, 4) <= size_of(formula) * 2 // 3 and size_of(rewritten(formula, "simplify")) > 1:
                break
        text = written(formula)
        return SmallTask(text, json.dumps({"formula": text}), 2 if novel else 1)

    def _clause(self, random: Random, names: str, operator: str, novel: bool) -> Formula:
        literals: list[Formula] = [("not", name) if random.random() < 0.4 else name for name in random.sample(names, 2)]
        if random.random() < 0.3:
            literals[1] = joined("or", [literals[1], random.choice(names)])
        clause = joined(operator, literals)
        return ("not", clause) if novel and random.random() < 0.4 else clause

    def is_demonstrated(self, task: SmallTask) -> bool:
        """Return whether a formula is of the first family."""
        return task.level == 1

    def script(self, random: Random, task: SmallTask) -> tuple[str, Sequence[str]]:
        """Draw rewritings: a sequence that reaches the fewest gates, or a random one."""
        formula = parse_formula(json.loads(task.answer)["formula"])
        if random.random() < self.sound:
            return "none", best_sequence(formula, 4)
        return "aimless", [random.choice(list(REWRITINGS)) for _ in range(4)]


def best_sequence(formula: Formula, steps: int) -> list[str]:
    """Return a shortest sequence of at most `steps` rewritings to the fewest gates, and `done` if it fits."""
    goal = least_size(formula, steps)
    ways = {formula: list[str]()}
    layer = [formula]
    while layer:
        if reached := [each for each in layer if size_of(each) == goal]:
            sequence = ways[reached[0]]
            return [*sequence, "done"] if len(sequence) < steps else sequence
        following = []
        for each in layer:
            for way in REWRITINGS:
                new = rewritten(each, way)
                if new not in ways:
                    ways[new] = [*ways[each], way]
                    following.append(new)
        layer = following
    raise ValueError("no sequence reaches the goal")


SET = SynthesisSet(Synthesis)
