"""Samples of the policy, with what a judge of their tokens reads in place of the prompt.

    y ~ pi(. | x),   judged as   judge(y | context),   context = x with its answer, or with a right completion

A judge that is the policy itself, or a copy of it, knows more than the policy by what it reads (on-policy
self-distillation, OPSD, arXiv 2601.18734: a reference solution; SDPO, arXiv 2601.20802: a completion of the same group
that is right). Where there is nothing to tell it the completion carries no loss. The form of the context must suit the
policy's tokenizer and what the model understands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from models.loop.rollout import Problem, Rollout
from models.loop.slots import Reads
from models.loop.world import World
from models.parts import part
from models.rewards.exact_answer import is_right, solves
from models.rollouts.sample import Sample
from models.text.encoding import Codec

Tells = Literal["answer", "peer", "demonstration"]


@part("privileged")
class Privileged(Sample):
    """Samples whose judge is told more than the policy. Stands under `rollouts:`."""

    gives = ("privileged",)
    tells: Tells = "answer"
    """What the judge is told: the true answer; the first completion of the same group that is right, the judged one
    aside; or a demonstration of the data that states the true answer."""
    context: Annotated[str, Field(pattern=r"\{told\}")] = (
        "{prompt}\nHere is a solution: {told}\nNow solve it in your own words."
    )
    """What the judge reads; `{prompt}` and `{told}` are replaced by the problem's prompt and by what it is told."""

    @property
    def reads(self) -> Reads:
        """Rows that hold the demonstrations, where they are told."""
        return "demonstrations" if self.tells == "demonstration" else "problems"

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """What the context is longer than the prompt, [problems]; a peer has `max_tokens` at most."""
        told = [self._known(problem) if self.tells != "peer" else "" for problem in problems]
        contexts = codec.prompts([self._context(one, text or "") for one, text in zip(problems, told, strict=True)])
        peer = self.max_tokens if self.tells == "peer" else 0
        return [max(0, len(ids) + peer - len(problem.tokens)) for ids, problem in zip(contexts, problems, strict=True)]

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Completions of `problems`, each with what its judge reads, [prompts * G]."""
        rollouts = super().__call__(world, problems, round_number)
        told = self._peers(rollouts) if self.tells == "peer" else [self._known(one.problem) for one in rollouts]
        texts = [self._context(one.problem, text or "") for one, text in zip(rollouts, told, strict=True)]
        contexts = world.codec.prompts(texts)
        return [
            replace(one, trained=(False,) * len(one.completion))
            if text is None
            else replace(one, privileged=tuple(ids))
            for one, text, ids in zip(rollouts, told, contexts, strict=True)
        ]

    def _context(self, problem: Problem, told: str) -> str:
        return self.context.replace("{prompt}", problem.prompt).replace("{told}", told)

    def _known(self, problem: Problem) -> str | None:
        """What the data say of a problem; None where it is nothing."""
        if self.tells == "answer":
            return problem.answer or None
        right = (one.text for one in problem.known if is_right(one.text, problem.answer, finished=True))
        return next(right, None)

    @staticmethod
    def _peers(rollouts: Sequence[Rollout]) -> list[str | None]:
        """The first right completion of each one's group that is not itself, [completions]."""
        right: dict[int, list[Rollout]] = {}
        for one in rollouts:
            if solves(one):
                right.setdefault(one.group, []).append(one)
        return [next((peer.text for peer in right.get(one.group, []) if peer is not one), None) for one in rollouts]
