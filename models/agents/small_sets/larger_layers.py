"""Teachers of five blocks, with which a policy is measured that was trained with four."""

from __future__ import annotations

from models.agents.environments.layers import LayerChoices
from models.agents.small_sets.layers import LayersSet

SET = LayersSet(LayerChoices, seed=2, problems={"train": 0, "validation": 0, "gate": 100}, demonstrations=0, blocks=5)
