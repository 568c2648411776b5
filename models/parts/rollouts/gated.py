"""Sample each token from the policy or from the reference, as a learned gate decides (STG; paper 12).

    z_t     ~ Bernoulli(g_t),   g_t = sigmoid(gate(h_t)),   h_t: the reference's state that predicts token t
    token_t ~ policy(. | before) if z_t = 1, reference(. | before) if z_t = 0

"Selective Token Generation for Few-shot Natural Language Generation" preserves the knowledge of a pretrained model by
letting the task's adapter write only the tokens that a selector assigns to it. An action is the pair (z_t, token_t),
and its log-probability is the sum of both. Only the second term at the policy's own tokens depends on the policy, so
the policy is trained on these tokens alone. The gate is the companion of the advantage `selective`, which trains it;
here it is only read.

The recorded log-probs are those of the token under its writer, without the choice. The gate draws from a generator of
its own, so wherever it is certain, the completions equal those of the one model that writes, to the last digit. Reading
the reference's states, rather than the adapter's, is derived: the gate's input does not change while the policy learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from models.base.errors import UserError
from models.base.seeds import round_seed
from models.engines.gated_engine import REFERENCE, save_gate, switch_of
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.voices import JointSampling, policy_voice, reference_voice, sample_jointly, save_reference
from models.parts.advantage.selective import Selective
from models.policies.use import GATE, PolicyUse, write_use
from models.text.encoding import Codec


@part("gated")
class Gated(JointSampling):
    """Completions whose tokens come from policy or reference, by the choice of a gate. Set under `rollouts:`."""

    exports = True
    gives = ("choices",)
    needs_companion = Selective.companion

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return completions of `problems`, [prompts * G]; seed and round determine them and their writers.

        A completion without any token of the policy gives no signal, but counts for its group's mean.

        Raises:
            UserError: the recipe has no gate, or no reference.
        """
        learner = resources.learner
        gate = learner.companions.get(Selective.companion)
        if gate is None:
            raise UserError("rollouts gated: no gate exists to choose who writes; set `advantage: {name: selective}`")
        voices = [policy_voice(learner), reference_voice(learner)]
        seed = round_seed(resources.seed, round_number)
        return sample_jointly(resources, problems, voices, self.sampling, seed, switch=switch_of(gate.model))

    def export(self, learner: Learner, codec: Codec, start: Path, folder: Path) -> None:
        """Write gate and reference next to the policy, because all three are used together. See `Rollouts.export`."""
        head = learner.companions[Selective.companion].model
        assert isinstance(head, nn.Linear), "the gate was made by the advantage selective"
        save_gate(head, folder / GATE)
        save_reference(learner, start, folder / GATE / REFERENCE)
        write_use(folder, PolicyUse(gated=True))
