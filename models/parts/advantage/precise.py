r"""Group-relative advantage that counts more at tokens where precision matters, such as numbers (CAD-RL, paper 246).

    A_t = weight * A   at tokens whose text matches `pattern`,   A elsewhere

In a program that draws something, the dimensions decide, and most other tokens are form. The paper calls the weight of
their loss "precision token loss". Here it multiplies the advantage, which is the same for a loss that is linear in it,
such as that of GRPO.
"""

from __future__ import annotations

from pydantic import PositiveFloat

from models.answers.patterns import compiled
from models.method.advantage import Signal
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.advantage.group_relative import GroupRelative


@part("precise")
class Precise(GroupRelative):
    """Group-relative advantage with a weight at tokens of a pattern."""

    pattern: str = r"\d+"
    """Regular expression that the text of such a token matches as a whole, without white space around it."""
    weight: PositiveFloat = 2.0
    """Weight of these tokens; that of all others is 1."""

    def __post_init__(self) -> None:
        """Raise an error for a pattern that cannot be read."""
        super().__post_init__()
        object.__setattr__(self, "_pattern", compiled(self.pattern, "advantage.pattern"))

    def __call__(self, resources: RunResources, scored: Scored) -> Signal:
        """Return the completion's advantage at each of its tokens, times the token's weight."""
        signal, pattern = super().__call__(resources, scored), vars(self)["_pattern"]
        texts = resources.codec.token_texts
        written = {token for rollout in scored.rollouts for token in rollout.completion}
        matching = {token for token in written if token >= 0 and pattern.fullmatch(texts[token].strip())}
        return Signal(
            [
                row * row.new_tensor([self.weight if token in matching else 1.0 for token in rollout.completion])
                for row, rollout in zip(signal.tokens, scored.rollouts, strict=True)
            ]
        )
