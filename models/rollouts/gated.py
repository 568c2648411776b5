"""Sample by turns from policy and reference, as a learned gate says at every token (STG; paper 12).

    z_t     ~ Bernoulli(g_t),   g_t = sigmoid(gate(h_t)),   h_t: the reference's state that predicts token t
    token_t ~ policy(. | before) if z_t = 1, reference(. | before) if z_t = 0

"Selective Token Generation for Few-shot Natural Language Generation" keeps what a pretrained model knows by letting the
task's adapter write only where a selector wants it. An action is the pair (z_t, token_t), and its log-probability the
sum of both; what depends on the policy is the second at the tokens that it wrote itself, so it is trained on these
alone. The gate is the companion of the advantage `selective`, which learns it; here it is only asked.

Log-probs that are noted are those of the token under its writer, without the choice. The gate draws from a generator of
its own, so where it is certain the completions are, to the last digit, those of the one model that writes. Reading the
reference's states, rather than the adapter's, is derived: what the gate sees does not move while the policy learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from models.advantage.selective import Selective
from models.engine.gated_engine import REFERENCE, save_gate, switch_of
from models.errors import UserError
from models.loop.learner import Learner
from models.loop.rollout import Problem, Rollout
from models.loop.round_seeds import round_seed
from models.loop.voices import Voiced, drawn_by, policy_voice, reference_voice, save_reference
from models.loop.world import World
from models.parts import part
from models.policy.use import GATE, Use, write_use
from models.text.encoding import Codec


@part("gated")
class Gated(Voiced):
    """Completions that policy and reference write by turns. Stands under `rollouts:`."""

    exports = True
    gives = ("choices",)
    needs_companion = Selective.companion

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Completions of `problems`, [prompts * G]; the same seed and round give the same ones, and the same writers.

        A completion of which the policy wrote nothing gives no signal, but counts for its group's mean.

        Raises:
            UserError: the recipe has no gate, or no reference.
        """
        learner = world.learner
        gate = learner.companions.get(Selective.companion)
        if gate is None:
            raise UserError("rollouts gated: there is no gate to choose who writes; set `advantage: {name: selective}`")
        voices = [policy_voice(learner), reference_voice(learner)]
        seed = round_seed(world.seed, round_number)
        return drawn_by(world, problems, voices, self.sampling, seed, switch=switch_of(gate.model))

    def export(self, learner: Learner, codec: Codec, start: Path, folder: Path) -> None:
        """Write gate and reference beside the policy, which is used as it learned: by turns. See `Rollouts.export`."""
        head = learner.companions[Selective.companion].model
        assert isinstance(head, nn.Linear), "the gate was made by the advantage selective"
        save_gate(head, folder / GATE)
        save_reference(learner, start, folder / GATE / REFERENCE)
        write_use(folder, Use(gated=True))
