"""Solutions with their steps and step labels: the training data of a process reward model.

A labeller is a part of the slot `labels` (models/parts/labels). It gets problems and a bench, which samples solutions
of the policy and continues from their steps, and returns solutions with a label per step. Most label sampled solutions
(`label`); one that makes its own, such as a tree search, returns them itself (`__call__`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from models.base.seeds import completion_seed, seed_of
from models.engines.engine import CompletionRequest, Engine, Generated, Sampling, requests_of
from models.method.attempt import Attempt, Verify
from models.method.judge import GenerativeJudge
from models.method.problem import Problem
from models.method.registry import Part
from models.method.steps import pieces_of, step_ends
from models.text.encoding import Codec


@dataclass(frozen=True, eq=False)
class Solution:
    """A completion cut into steps."""

    problem: Problem
    """Problem with its encoded prompt."""
    completion: tuple[int, ...]
    """Token ids, including the end token if it was reached, [tokens]."""
    ends: tuple[int, ...]
    """Index of the last token of each step, [steps], increasing."""
    text: str
    finished: bool
    """Whether it ended by itself and was not cut."""
    right: bool
    """Whether it solves the problem."""
    labels: tuple[float, ...] = ()
    """Value of each step, 0 to 1, [steps]; NaN: not known. Empty before it is labelled."""

    def prefix(self, step: int) -> tuple[int, ...]:
        """Return the completion up to the end of a step, numbered from 0; -1: an empty prefix."""
        return self.completion[: self.ends[step] + 1] if step >= 0 else ()

    def labelled(self, labels: Tensor) -> Solution:
        """Return the same solution with a label per step, [steps]."""
        return replace(self, labels=tuple(labels.tolist()))


@dataclass(frozen=True)
class LabellingTools:
    """Access of a labeller to the policy, the verifier, the data's solutions and the judge."""

    engine: Engine
    """Samples from the policy that solves the problems."""
    codec: Codec
    verify: Verify
    """Decides which solutions are right."""
    sampling: Sampling
    """Sampling settings of solutions, including their number per problem."""
    marks: tuple[str, ...]
    """Separators that end a step."""
    seed: int
    references: Mapping[str, str]
    """Text of a solution that the data mark as right, by the prompt; some problems have none."""
    judge: GenerativeJudge | None = None
    """Judge of the recipe; None if it has none."""

    def required_judge(self) -> GenerativeJudge:
        """Return the judge of the recipe.

        The recipe check makes sure that a recipe has one if its labels need it.
        """
        assert self.judge is not None, "the recipe check makes sure that a judge is there"
        return self.judge

    def solutions(self, problems: Sequence[Problem]) -> list[Solution]:
        """Sample `sampling.samples` solutions of each problem from the policy, [problems * samples]."""
        repeated = [problem for problem in problems for _ in range(self.sampling.samples)]
        seed = seed_of(self.seed, "solutions")
        completions = self.engine.complete(
            requests_of([problem.tokens for problem in problems], self.sampling, seed), self.sampling
        )
        return self.read(repeated, [each.tokens for each in completions], [each.finished for each in completions])

    def read(
        self, problems: Sequence[Problem], completions: Sequence[tuple[int, ...]], finished: Sequence[bool]
    ) -> list[Solution]:
        """Cut completions of problems into steps and verify them, [completions]; empty ones are left out."""
        kept = [place for place, ids in enumerate(completions) if ids]
        rows, kept_problems = [completions[place] for place in kept], [problems[place] for place in kept]
        ended = [finished[place] for place in kept]
        texts, right = self.judged(kept_problems, rows, ended)
        pieces = pieces_of(self.codec, rows)
        return [
            Solution(problem, ids, step_ends(token_texts, self.marks), text, whole, sound)
            for problem, ids, token_texts, text, whole, sound in zip(
                kept_problems, rows, pieces, texts, ended, right, strict=True
            )
        ]

    def judged(
        self, problems: Sequence[Problem], completions: Sequence[Sequence[int]], finished: Sequence[bool]
    ) -> tuple[list[str], list[bool]]:
        """Return the text of each completion, and whether it is right, both [completions]."""
        texts = self.codec.text(completions)
        attempts = [Attempt(*of) for of in zip(problems, texts, finished, strict=True)]
        return texts, [bool(sound) for sound in self.verify(attempts)]

    def continuations(
        self, prompts: Sequence[Sequence[int]], budgets: Sequence[int], count: int
    ) -> list[list[Generated]]:
        """Sample `count` continuations of each prompt, of at most `budgets` tokens, [prompts][count].

        The continuations of a prompt depend only on its tokens and the seed.
        """
        requests = []
        for prompt, budget in zip(prompts, budgets, strict=True):
            own = seed_of(self.seed, f"from {' '.join(map(str, prompt))}")
            requests += [CompletionRequest(prompt, completion_seed(own, 0, number), budget) for number in range(count)]
        completions = self.engine.complete(requests, self.sampling)
        return [completions[at : at + count] for at in range(0, len(completions), count)]


class Labels(Part):
    """Labeller of the steps of solutions. Named by `reward_model.process.labels`."""

    slot = "labels"

    @property
    def needs_references(self) -> bool:
        """Whether it reads solutions of the data, which demonstrations or preferences must hold."""
        return False

    @property
    def needs_judge(self) -> bool:
        """Whether it uses the judge."""
        return False

    def __call__(self, bench: LabellingTools, problems: Sequence[Problem]) -> list[Solution]:
        """Return solutions of `problems` with a label per step, [solutions]."""
        drawn = bench.solutions(problems)
        return [solution.labelled(row) for solution, row in zip(drawn, self.label(bench, drawn), strict=True)]

    @abstractmethod
    def label(self, bench: LabellingTools, solutions: Sequence[Solution]) -> list[Tensor]:
        """Return the value of each step, 0 to 1, NaN if not known, [solutions] tensors of [steps of it]."""


def known_labels(solution: Solution) -> Tensor:
    """Return whether each step has a label, [steps], bool."""
    return ~torch.tensor(solution.labels, dtype=torch.float64).isnan()
