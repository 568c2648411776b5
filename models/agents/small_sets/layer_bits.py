"""Teachers of four blocks, and students of random bits and blocks."""

from __future__ import annotations

from models.agents.environments.layers import LayerChoices
from models.agents.small_sets.layers import LayersSet

SET = LayersSet(lambda: LayerChoices(asks=("drop", "bits"), predictor=32), seed=3)
