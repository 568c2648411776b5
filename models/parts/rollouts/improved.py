"""The policy improves on its own answers and is trained to do so (PIT, paper 70, arXiv 2310.00898).

    y_ref ~ pi(. | x)                    one per prompt, not trained on
    y ~ pi(. | x, y_ref)                 G of them, rewarded for their improvement

A refinement that is placed under the plain prompt teaches the policy to answer well at once (rollouts refined). Here
the earlier answer stays in the prompt, so the policy learns to improve an answer, in the sense that the reward defines.
A reward model of gaps (`models.reward_models.gap`), which reads the same prompts, gives exactly that. With feedback
that has no words, the prompt does not state what to improve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from models.base.bounds import Positive
from models.base.seeds import round_seed, second_sampling_seed
from models.method.attempt import AGAIN, Attempt
from models.method.feedback import Feedback
from models.method.problem import Problem, systems_of
from models.method.registry import default_part, part, slot_type
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.sample import Sample, draw
from models.text.encoding import Codec
from models.text.prompt_form import in_context

if TYPE_CHECKING:
    Chosen = Feedback
else:
    Chosen = slot_type("feedback")


@part("improved")
class Improved(Sample):
    """Answers that follow an earlier answer of the policy and feedback on it. Set under `rollouts:`."""

    feedback: Chosen = field(default_factory=lambda: default_part("feedback")())
    """Feedback on a sample."""
    context: Annotated[str, Field(pattern=r"\{shown\}")] = AGAIN
    """Prompt of a refinement; `{prompt}` and `{shown}` are replaced by the problem's prompt and by the sample and its
    feedback."""
    feedback_tokens: Positive = 32
    """Most tokens of feedback; longer feedback is cut."""

    @property
    def adviser(self) -> Feedback:
        """Source of the feedback on a sample."""
        return self.feedback

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Return the most tokens that a context adds to the question, [problems]; a sample has at most `max_tokens`."""
        bare = codec.prompts(
            [in_context(self.context, problem.prompt, "", "") for problem in problems], systems_of(problems)
        )
        room = self.max_tokens + self.feedback_tokens
        return [max(0, len(ids) + room - len(each.tokens)) for ids, each in zip(bare, problems, strict=True)]

    def _with_feedback(self, resources: RunResources, samples: Sequence[Rollout]) -> tuple[list[Problem], list[str]]:
        """Return each sample's problem with its context as the prompt's tokens, and the feedback on it, [samples]."""
        remarks = self.feedback([Attempt.of(each) for each in samples])
        feedback_texts = [self._cut(resources.codec, remark.text) for remark in remarks]
        texts = [
            in_context(self.context, each.problem.prompt, each.text, words)
            for each, words in zip(samples, feedback_texts, strict=True)
        ]
        prompts = resources.codec.prompts(texts, [each.problem.system for each in samples])
        requests = [replace(each.problem, tokens=tuple(ids)) for each, ids in zip(samples, prompts, strict=True)]
        return requests, feedback_texts

    def _cut(self, codec: Codec, text: str) -> str:
        (ids,) = codec.inside([text])
        return text if len(ids) <= self.feedback_tokens else codec.text([ids[: self.feedback_tokens]])[0]

    @property
    def training_context(self) -> str:
        """Template of the text that comes before a completion in training."""
        return self.context

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return improvements of one answer to each problem, each under its context, [prompts * G]."""
        seed = round_seed(resources.seed, round_number)
        drafts = draw(resources, problems, replace(self.sampling, samples=1), second_sampling_seed(seed))
        requests, _ = self._with_feedback(resources, drafts)
        return draw(resources, requests, self.sampling, seed)
