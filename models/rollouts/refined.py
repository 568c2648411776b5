"""Refinements of the policy's own answers by feedback in words (Critique-GRPO, paper 11; ILF, paper 200).

    y ~ pi(. | x)                       G answers
    c = feedback(x, y)
    y' ~ pi(. | x, y, c)                placed under x alone

The feedback says what is wrong with an answer, so that a policy that goes on failing can still write a right one. What
it is trained on is the plain prompt with the refinement behind it: it learns to answer so at once. Nobody drew that
from pi(. | x), so it has no behaviour log-probs. The form of the context must suit the policy's tokenizer; a new policy
learns to read it in the warm start (`warm_start.context` with `tells: feedback`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from models.bounds import Positive
from models.loop.attempt import Attempt
from models.loop.feedback import Feedback
from models.loop.rollout import Problem, Rollout
from models.loop.round_seeds import for_second_draw, round_seed
from models.loop.world import World
from models.part_types import slot_type
from models.parts import default_part, part
from models.rewards.exact_answer import solves
from models.rollouts.sample import Sample, draw
from models.text.encoding import Codec

if TYPE_CHECKING:
    Chosen = Feedback
else:
    Chosen = slot_type("feedback")


def in_context(context: str, prompt: str, tried: str, said: str) -> str:
    """What a policy reads that is to refine an answer: the context with its places filled, each once."""
    head, _, tail = context.partition("{told}")
    shown = f"{tried} {said}".strip()
    return f"{head.replace('{prompt}', prompt)}{shown}{tail.replace('{prompt}', prompt)}"


@part("refined")
class Refined(Sample):
    """Samples, and refinements of them by feedback. Stands under `rollouts:`."""

    feedback: Chosen = field(default_factory=lambda: default_part("feedback")())
    """What is said of a sample."""
    context: Annotated[str, Field(pattern=r"\{told\}")] = (
        "{prompt}\nA previous solution and what is to be said of it: {told}\nSolve it anew, without its faults."
    )
    """What a refinement is drawn behind; `{prompt}` and `{told}` are replaced by the problem's prompt and by the sample
    with its feedback."""
    refinements: Positive = 1
    """Of each sample."""
    only_wrong: bool = False
    """Refine no sample that states the problem's answer."""
    feedback_tokens: Positive = 32
    """Most tokens of feedback; what is longer is cut."""

    @property
    def adviser(self) -> Feedback:
        """Who says what of a sample."""
        return self.feedback

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Samples and refinements."""
        return self.group_size * (1 + self.refinements)

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """What a context says beside the question, [problems]; a sample has `max_tokens` at most."""
        bare = codec.prompts([in_context(self.context, problem.prompt, "", "") for problem in problems])
        room = self.max_tokens + self.feedback_tokens
        return [max(0, len(ids) + room - len(each.tokens)) for ids, each in zip(bare, problems, strict=True)]

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Samples, then refinements, prompt by prompt, [prompts * G and more]."""
        seed = round_seed(world.seed, round_number)
        sampled = draw(world, problems, self.sampling, seed)
        refined = self._refine(world, sampled, for_second_draw(seed))
        rollouts = []
        for number in range(len(problems)):
            rollouts += sampled[number * self.group_size : (number + 1) * self.group_size]
            rollouts += [rollout for rollout in refined if rollout.group == number]
        return rollouts

    def _refine(self, world: World, sampled: Sequence[Rollout], seed: int) -> list[Rollout]:
        """Refinements of each sample, each under the plain prompt and in the sample's group."""
        tried = [rollout for rollout in sampled if not (self.only_wrong and solves(rollout))]
        if not tried:
            return []
        remarks = self.feedback([Attempt(each.problem, each.text, each.finished) for each in tried])
        said = [self._cut(world.codec, remark.text) for remark in remarks]
        texts = [
            in_context(self.context, each.problem.prompt, each.text, words)
            for each, words in zip(tried, said, strict=True)
        ]
        asked = [
            replace(each.problem, tokens=tuple(ids))
            for each, ids in zip(tried, world.codec.prompts(texts), strict=True)
        ]
        drawn = draw(world, asked, replace(self.sampling, samples=self.refinements), seed, origin="refined")
        return [
            replace(
                rollout,
                problem=tried[rollout.group].problem,
                group=tried[rollout.group].group,
                behaviour_log_probs=None,
                feedback=said[rollout.group],
            )
            for rollout in drawn
        ]

    def _cut(self, codec: Codec, text: str) -> str:
        (ids,) = codec.inside([text])
        return text if len(ids) <= self.feedback_tokens else codec.text([ids[: self.feedback_tokens]])[0]
