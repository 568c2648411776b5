"""Sample by turns from policy and reference, as a learned gate says at every token (STG; paper 12).

    z_t     ~ Bernoulli(g_t),   g_t = sigmoid(gate(h_t)),   h_t: the reference's state that predicts token t
    token_t ~ policy(. | before) if z_t = 1, reference(. | before) if z_t = 0

"Selective Token Generation for Few-shot Natural Language Generation" keeps what a pretrained model knows by letting the
task's adapter write only where a selector wants it. An action is the pair (z_t, token_t), and its log-probability the
sum of both; what depends on the policy is the second at the tokens that it wrote itself, so these alone teach it. The
gate is the companion of the advantage `selective`, which learns it; here it is only asked.

Log-probs that are noted are those of the token under its writer, without the choice. The gate draws from a generator of
its own, so where it is certain the completions are, to the last digit, those of the one model that writes. Reading the
reference's states, rather than the adapter's, is derived: what the gate sees does not move while the policy learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from models.advantages.selective import Selective
from models.errors import UserError
from models.loop.rollout import Problem, Rollout
from models.loop.slots import Beside, World
from models.parts import part
from models.sources.seeds import for_choices, round_seed
from models.sources.voices import Voiced, drawn_by, policy_voice, reference_voice


@part("rollouts", "gated")
class Gated(Voiced):
    """Completions that policy and reference write by turns. Stands under `rollouts:`."""

    beside: ClassVar[tuple[Beside, ...]] = ("choices",)
    needs_companion: ClassVar[str] = Selective.companion

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Completions of `problems`, [prompts * G]; the same seed and round give the same ones, and the same writers.

        A completion of which the policy wrote nothing teaches nothing, but counts for its group's mean.

        Raises:
            UserError: the recipe has no gate, or no reference.
        """
        learner = world.models()
        gate = learner.companions.get(Selective.companion)
        if gate is None:
            raise UserError("rollouts gated: there is no gate to choose who writes; set `advantage: {name: selective}`")
        head, weight = gate.model, next(gate.model.parameters())
        seed = round_seed(world.seed, round_number)
        random = torch.Generator(weight.device).manual_seed(for_choices(seed))

        def policy_writes(states: Tensor) -> Tensor:
            chance: Tensor = head(states.to(weight.dtype)).squeeze(-1).sigmoid()
            # points lie in [0, 1): a chance of exactly 1 is always taken, one of exactly 0 never
            point = torch.rand(chance.shape, dtype=torch.float64, device=chance.device, generator=random)
            return torch.lt(point, chance.double())

        voices = [policy_voice(learner), reference_voice(learner)]
        return drawn_by(world, problems, voices, self.sampling, seed, switch=policy_writes)
