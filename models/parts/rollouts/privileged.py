"""Samples of the policy, with a privileged context that a judge of their tokens reads instead of the prompt.

    y ~ pi(. | x),   judged as   judge(y | context),   context = x with its answer, or with a right completion

A judge that is the policy itself, or a copy of it, knows more than the policy through its context (on-policy
self-distillation, OPSD, arXiv 2601.18734: a reference solution; SDPO, arXiv 2601.20802: a completion of the same group
that is right). A completion without such information carries no loss. The form of the context must suit the policy's
tokenizer and the model's abilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from models.answers.exact import is_right, solves
from models.method.problem import Problem, Reads, systems_of
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.sample import Sample
from models.text.encoding import Codec

Shows = Literal["answer", "peer", "demonstration"]


@part("privileged")
class Privileged(Sample):
    """Samples whose judge knows more than the policy. Set under `rollouts:`."""

    gives = ("privileged",)
    renamed: ClassVar[Mapping[str, str]] = {"tells": "shows"}
    shows: Shows = "answer"
    """Additional information of the judge: the true answer; the first right completion of the same group other than the
    judged one; or a demonstration of the data that states the true answer."""
    context: Annotated[str, Field(pattern=r"\{shown\}")] = (
        "{prompt}\nHere is a solution: {shown}\nNow solve it in your own words."
    )
    """Context of the judge; `{prompt}` and `{shown}` are replaced by the problem's prompt and by the additional
    information."""

    @property
    def reads(self) -> Reads:
        """Kind of rows; demonstrations if the judge reads them."""
        return "demonstrations" if self.shows == "demonstration" else "problems"

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Return the length of the context beyond the prompt, [problems]; a peer has at most `max_tokens`."""
        hints = [self._known(problem) if self.shows != "peer" else "" for problem in problems]
        texts = [self._context(problem, hint or "") for problem, hint in zip(problems, hints, strict=True)]
        contexts = codec.prompts(texts, systems_of(problems))
        peer = self.max_tokens if self.shows == "peer" else 0
        return [max(0, len(ids) + peer - len(problem.tokens)) for ids, problem in zip(contexts, problems, strict=True)]

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return completions of `problems`, each with the context of its judge, [prompts * G]."""
        rollouts = super().__call__(resources, problems, round_number)
        known = self._peers if self.shows == "peer" else self._of_the_data
        hints = known(rollouts)
        texts = [self._context(rollout.problem, text or "") for rollout, text in zip(rollouts, hints, strict=True)]
        contexts = resources.codec.prompts(texts, [rollout.problem.system for rollout in rollouts])
        return [
            replace(rollout, trained=(False,) * len(rollout.completion))
            if text is None
            else replace(rollout, source=replace(rollout.source, privileged=tuple(ids)))
            for rollout, text, ids in zip(rollouts, hints, contexts, strict=True)
        ]

    def _context(self, problem: Problem, hint: str) -> str:
        return self.context.replace("{prompt}", problem.prompt).replace("{shown}", hint)

    def _known(self, problem: Problem) -> str | None:
        """Return the data's information on a problem; None if there is none."""
        if self.shows == "answer":
            return problem.answer or None
        right = (answer.text for answer in problem.known if is_right(answer.text, problem.answer, finished=True))
        return next(right, None)

    @staticmethod
    def _peers(rollouts: Sequence[Rollout]) -> list[str | None]:
        """Return the first other right completion of each one's group, [completions]."""
        right: dict[int, list[Rollout]] = {}
        for rollout in rollouts:
            if solves(rollout):
                right.setdefault(rollout.group, []).append(rollout)
        others = ((peer.text for peer in right.get(mine.group, []) if peer is not mine) for mine in rollouts)
        return [next(texts, None) for texts in others]

    def _of_the_data(self, rollouts: Sequence[Rollout]) -> list[str | None]:
        """Return the data's information on each one's problem, [completions]."""
        return [self._known(rollout.problem) for rollout in rollouts]
