"""Completions of the policy and of its teacher, prompt by prompt (GKD, arXiv 2306.13649).

    y ~ pi(. | x) with probability `on_policy` (the paper's lambda), else y ~ teacher(. | x), or an answer of the data

With `on_policy` 0 all completions are the teacher's: trained on by likelihood, that is sequence-level distillation (Kim
and Rush 2016, arXiv 1606.07947). The paper tosses its coin once per batch, here it is tossed per prompt: the mean
gradient is the same, its noise smaller. The teacher is the learner's own and decodes there; the engine draws for the
policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Literal

import torch

from models.base.bounds import Share
from models.base.errors import UserError
from models.base.seeds import choice_seed, round_seed, second_sampling_seed
from models.engines.voice import Voice
from models.method.learner import TeacherUse
from models.method.problem import Problem, Reads
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.voices import sample_jointly
from models.parts.rollouts.dataset import as_rollout
from models.parts.rollouts.sample import Sample, draw


@part("from_teacher")
class FromTeacher(Sample):
    """Samples of the policy for some prompts, of the teacher or the data for the others. Set under `rollouts:`."""

    reads_models = True
    on_policy: Share = 0.0
    """Share of the prompts that the policy answers itself (GKD's lambda)."""
    otherwise: Literal["teacher", "demonstrations"] = "teacher"
    """Source of the answers to the other prompts: the teacher, or one demonstration per prompt, drawn again in each
    round."""

    @property
    def draws(self) -> bool:
        """Whether the policy answers any prompt."""
        return self.on_policy > 0

    @property
    def needs_teacher(self) -> TeacherUse | None:
        """The teacher's model, if it answers any prompt."""
        return "model" if self.otherwise == "teacher" and self.on_policy < 1 else None

    @property
    def reads(self) -> Reads:
        """Rows with the answers, if the data's are used."""
        return "demonstrations" if self.otherwise == "demonstrations" else "problems"

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return completions of `problems`, those of one prompt next to each other, [completions]."""
        seed = round_seed(resources.seed, round_number)
        random = torch.Generator().manual_seed(choice_seed(seed))
        mine = (torch.rand(len(problems), dtype=torch.float64, generator=random) < self.on_policy).tolist()
        places = {own: [number for number, flag in enumerate(mine) if flag == own] for own in (True, False)}
        made = draw(resources, [problems[at] for at in places[True]], self.sampling, seed) if places[True] else []
        rollouts = [_placed(rollout, places[True]) for rollout in made]
        others = [problems[at] for at in places[False]]
        if self.otherwise == "demonstrations":
            picks = torch.rand(len(others), dtype=torch.float64, generator=random).tolist()
            rest = [
                as_rollout(problem, number, problem.known[int(pick * len(problem.known))])
                for number, (problem, pick) in enumerate(zip(others, picks, strict=True))
            ]
        else:
            rest = self._of_teacher(resources, others, second_sampling_seed(seed)) if others else []
        rollouts += [_placed(rollout, places[False]) for rollout in rest]
        return sorted(rollouts, key=lambda rollout: rollout.group)

    def _of_teacher(self, resources: RunResources, problems: Sequence[Problem], seed: int) -> list[Rollout]:
        """Sample the teacher's completions of `problems`, [prompts * G]."""
        teacher = resources.learner.teachers.get("teacher")
        if teacher is None:
            raise UserError("rollouts: the teacher is to answer, but the recipe has none; set teacher.path")
        voice = Voice(lambda: nullcontext(teacher), autocast=resources.learner.autocast)
        return sample_jointly(resources, problems, [voice], self.sampling, seed, origin="teacher")


def _placed(rollout: Rollout, places: Sequence[int]) -> Rollout:
    """Return the rollout with the number that its prompt has among all of the round's."""
    return replace(rollout, group=places[rollout.group])
