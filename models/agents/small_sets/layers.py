"""Teachers of four blocks, and students that were chosen at random."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from models.agents.environments.layers import WORDS, LayerChoices
from models.agents.play.teacher_network import teacher_network
from models.agents.small_sets.rows import SmallSet, SmallTask


@dataclass(frozen=True)
class LayersSet(SmallSet):
    """Teachers with random seeds."""

    blocks: int = 4
    """Number of blocks of each teacher."""
    aimless: str = "aimless"
    """Flaw of the demonstrations, whose choices are random."""

    def draw(self, random: Random) -> SmallTask:
        """Draw a teacher; the prompt states the weights and the change of each of its blocks."""
        seed = random.randrange(100_000)
        blocks = " , ".join(
            f"{weights} w {change:.2f}" for weights, change in teacher_network(seed, self.blocks).described
        )
        answer = json.dumps({"seed": seed, "blocks": self.blocks})
        return SmallTask(f"teacher {seed} : {blocks}", answer, self.blocks)

    def script(self, random: Random, task: SmallTask) -> tuple[str, Sequence[str]]:
        """Draw random choices, as many as an episode can have."""
        environment = self.environment()
        assert isinstance(environment, LayerChoices)
        turns: list[str] = []
        dropped: set[int] = set()
        for kind in environment.asks:
            for block in range(self.blocks):
                if block not in dropped:
                    word = random.choice(WORDS[kind])
                    turns.append(word)
                    dropped |= {block} if word == "drop" else set()
        return self.aimless, turns


SET = LayersSet(LayerChoices)
