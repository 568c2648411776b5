"""Group alignment: samples of the policy, an answer of the data, and the comparison of each sample with the answer.

    loss = -[ mean_i A_i l(o_i)  +  imitation * A_y l(y)  +  alignment * mean_i (A_i - A_y) (l(o_i) - l(y)) ]

o_i are the samples of a prompt, y is its reference answer, l = log pi / length is a completion's mean log-prob, and A
its advantage within the group that holds both. The three terms explore, imitate, and move the policy along the line
between each sample and the reference answer, towards the better. Source: GRAO (paper 259); only the names of the
paper's three terms are known, their form is derived here from their purpose.

The worse answer of a preference is neither a sample nor an answer to imitate: it affects the scale of the advantages
and has no loss of its own. Samples are not corrected for their sampler, so they must be those of the policy itself.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.origins import of_the_data, to_imitate


@part("group_alignment")
class GroupAlignment(Objective):
    """Exploration, imitation and comparison in one loss per group; needs `rollouts: {name: sample_beside_data}`."""

    level = "group"
    on_policy_only = True
    """Samples of an earlier policy are not corrected."""
    imitation: NonNegativeFloat = 1.0
    """Weight of the reference answer's own likelihood."""
    alignment: NonNegativeFloat = 0.5
    """Weight of the comparison of each sample with the reference answer."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each group, [groups]; several reference answers of a prompt count by their mean.

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: advantages, [tokens], lengths, groups and origins.
        """
        likelihood = log_prob / batch.lengths
        advantage = batch.mean_by_completion(batch.advantage)
        samples, answers = (~of_the_data(batch)).to(log_prob), to_imitate(batch).to(log_prob)

        def mean_over(mask: Tensor, values: Tensor) -> Tensor:
            return batch.sum_by_group(mask * values) / batch.sum_by_group(mask).clamp(min=1.0)

        answer_likelihood = batch.of_group(mean_over(answers, likelihood))
        answer_advantage = batch.of_group(mean_over(answers, advantage))
        has_answer = (batch.sum_by_group(answers) > 0).to(log_prob)
        explored = mean_over(samples, advantage * likelihood)
        imitated = mean_over(answers, advantage * likelihood)
        compared = (advantage - answer_advantage) * (likelihood - answer_likelihood)
        aligned = has_answer * mean_over(samples, compared)
        watch = {
            "exploration": explored,
            "imitation": imitated,
            "alignment": aligned,
            "answer_advantage": mean_over(answers, advantage),
        }
        loss = -(explored + self.imitation * imitated + self.alignment * aligned)
        return loss, {name: value.detach() for name, value in watch.items()}
