"""The policy improves on answers of its own, and is trained where it does so (PIT, paper 70, arXiv 2310.00898).

    y_ref ~ pi(. | x)                    one a prompt, trained on by nobody
    y ~ pi(. | x, y_ref)                 G of them, rewarded for what they are better by

A refinement that is placed under the plain prompt teaches to answer well at once (rollouts refined); here the earlier
answer stays in the prompt, so that what is learned is to make an answer better, whatever better is to the reward. A
reward model of gaps (`models.reward_model.gap`), which reads the same prompts, gives just that. With feedback that has
no words nobody says what is to be done better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from models.bounds import Positive
from models.loop.attempt import AGAIN, Attempt
from models.loop.feedback import Feedback
from models.loop.prompts import systems_of
from models.loop.rollout import Problem, Rollout
from models.loop.round_seeds import for_second_draw, round_seed
from models.loop.world import World
from models.part_types import slot_type
from models.parts import default_part, part
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


@part("improved")
class Improved(Sample):
    """Answers behind an earlier one of the policy's own and what is said of it. Stands under `rollouts:`."""

    feedback: Chosen = field(default_factory=lambda: default_part("feedback")())
    """What is said of a sample."""
    context: Annotated[str, Field(pattern=r"\{told\}")] = AGAIN
    """What a refinement is drawn behind; `{prompt}` and `{told}` are replaced by the problem's prompt and by the sample
    with its feedback."""
    feedback_tokens: Positive = 32
    """Most tokens of feedback; what is longer is cut."""

    @property
    def adviser(self) -> Feedback:
        """Who says what of a sample."""
        return self.feedback

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """What a context says beside the question, [problems]; a sample has `max_tokens` at most."""
        bare = codec.prompts(
            [in_context(self.context, problem.prompt, "", "") for problem in problems], systems_of(problems)
        )
        room = self.max_tokens + self.feedback_tokens
        return [max(0, len(ids) + room - len(each.tokens)) for ids, each in zip(bare, problems, strict=True)]

    def _behind(self, world: World, tried: Sequence[Rollout]) -> tuple[list[Problem], list[str]]:
        """The problem of each sample with its context as the prompt's tokens, and what was said of it, [tried]."""
        remarks = self.feedback([Attempt.of(each) for each in tried])
        said = [self._cut(world.codec, remark.text) for remark in remarks]
        texts = [
            in_context(self.context, each.problem.prompt, each.text, words)
            for each, words in zip(tried, said, strict=True)
        ]
        prompts = world.codec.prompts(texts, [each.problem.system for each in tried])
        asked = [replace(each.problem, tokens=tuple(ids)) for each, ids in zip(tried, prompts, strict=True)]
        return asked, said

    def _cut(self, codec: Codec, text: str) -> str:
        (ids,) = codec.inside([text])
        return text if len(ids) <= self.feedback_tokens else codec.text([ids[: self.feedback_tokens]])[0]

    @property
    def stands_behind(self) -> str:
        """Its context."""
        return self.context

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Improvements of one answer to each problem, each under its context, [prompts * G]."""
        seed = round_seed(world.seed, round_number)
        first = draw(world, problems, replace(self.sampling, samples=1), for_second_draw(seed))
        asked, _ = self._behind(world, first)
        return draw(world, asked, self.sampling, seed)
