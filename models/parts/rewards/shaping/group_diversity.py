"""Distance of a completion from the other completions of its prompt (arXiv 2410.06084; paper 149).

    value_i = 1 - mean over j != i in the group of cos(e(y_i), e(y_j))

The mean over a group is the expected dissimilarity of two of its completions, which the paper adds to the reward. e is
the words of the text with their counts, or the mean hidden state of the reference after it. A group of one has value 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.parts.rewards.shaping.novelty import word_cosine
from models.parts.shared.text_states import text_directions


@part("group_diversity")
class GroupDiversity(Reward):
    """One minus the mean cosine of a completion's text and the other texts of its group."""

    embedding: Literal["words", "states"] = "words"
    """Vector of a text: its words with their counts, or the mean hidden state of the reference, which the recipe then
    needs."""

    @property
    def reads_learner(self) -> bool:
        """Whether it reads the reference's hidden states."""
        return self.embedding == "states"

    @property
    def needs_reference(self) -> bool:
        """Whether the recipe needs a reference."""
        return self.embedding == "states"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [0, 2], [completions]; in [0, 1] for words.

        Raises:
            UserError: it embeds by hidden states, and the recipe has no reference.
        """
        groups: dict[int, list[int]] = {}
        for place, rollout in enumerate(rollouts):
            groups.setdefault(rollout.group, []).append(place)
        values = torch.zeros(len(rollouts), dtype=torch.float64)
        vectors: dict[str, Tensor] = {}
        if self.embedding == "states":
            vectors = text_directions(resources, (rollout.text for rollout in rollouts), f"reward {self.label}")
        for places in groups.values():
            for place in places:
                text, others = rollouts[place].text, [rollouts[it].text for it in places if it != place]
                if not others:
                    continue
                if vectors:
                    near = torch.stack([vectors[other] for other in others]) @ vectors[text]
                    values[place] = 1.0 - near.mean()
                else:
                    values[place] = 1.0 - float(word_cosine([text], Counter(others))[0])
        return values.float()
