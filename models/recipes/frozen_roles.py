"""Checks of a recipe's frozen models, teacher and judge: they exist if parts use them, and can do what is required.

Every refusal is one line that names the keys of the recipe (`models.recipes.combinations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from models.method.slot_part import SlotPart

if TYPE_CHECKING:
    from models.recipes.schema import Recipe


def check_teacher(recipe: Recipe, named: Sequence[tuple[str, SlotPart]]) -> None:
    """Check that the teacher suits the parts that learn from it; `named`: every part with its place in the recipe."""
    teacher = recipe.teacher
    learners = [(place, part) for place, part in named if part.needs_teacher is not None]
    if not learners and teacher is not None:
        raise ValueError("teacher: no part of the recipe learns from one, such as objective distillation; leave it out")
    for place, part in learners:
        if teacher is None:
            raise ValueError(f"{place} {part.name} learns from a teacher; set teacher.path to a model folder")
        if part.needs_teacher == "model" and teacher.address is not None:
            raise ValueError(
                f"{place} {part.name} needs the teacher's weights, but one behind teacher.address returns only "
                "log-probs of given tokens; set teacher.path, or advantage.name to judge_log_ratio"
            )
    sampling = recipe.rollouts.sampling
    if (
        teacher is not None
        and teacher.address is not None
        and (sampling.temperature, sampling.top_p, sampling.top_k) != (1, 1, 0)
    ):
        raise ValueError(
            "a teacher behind teacher.address returns log-probs of temperature 1 and of all tokens, and the policy's "
            "must be of the same: set rollouts.temperature to 1, top_p to 1 and top_k to 0, or teacher.path"
        )
    divergence = recipe.objective.divergence
    contrasts = divergence is not None and divergence.extrapolation is not None
    if contrasts and (teacher is None or teacher.contrast is None):
        raise ValueError(
            f"objective {recipe.objective.name} sets the teacher apart from another model; set teacher.contrast.path"
        )
    if not contrasts and teacher is not None and teacher.contrast is not None:
        raise ValueError("teacher.contrast: no part of the recipe reads it; leave it out")


def check_judge(recipe: Recipe, named: Sequence[tuple[str, SlotPart]]) -> None:
    """Check that the judge suits the parts that use it; `named`: every part with its place in the recipe."""
    users = [f"{place} {part.name}" for place, part in named if part.needs_judge]
    if recipe.labels is not None and recipe.labels.needs_judge:
        users.append(f"reward_model.process.labels {recipe.labels.name}")
    if recipe.reward_model is not None and recipe.reward_model.pairs is not None:
        users.append("reward_model.pairs.jury")
    if recipe.judges_report:
        users.append("reward_model.report.judged")
    if users and recipe.judge is None:
        raise ValueError(
            f"{users[0]} asks a judge; set judge.recipe, judge.path or judge.address, or judge to {{}} for the policy "
            "as it began"
        )
    readers = [f"{place} {part.name}" for place, part in named if part.needs_likelihoods]
    if readers and recipe.judge is not None and recipe.judge.address is not None:
        raise ValueError(
            f"{readers[0]} asks the judge how likely given texts are, which one behind judge.address does not return; "
            "set judge.path or judge.recipe"
        )
    trainers = [f"{place} {part.name}" for place, part in named if part.companion and part.begins_as == "judge"]
    if trainers and recipe.judge is not None and recipe.judge.address is not None:
        raise ValueError(
            f"{trainers[0]} trains the judge, whose weights one behind judge.address does not give; set judge.path or "
            "judge.recipe"
        )
    if len(trainers) > 1:
        raise ValueError(f"{trainers[0]} and {trainers[1]} would both train the one judge; leave one of them out")
    if trainers and recipe.judge is not None and recipe.judge.temperature == 0:
        raise ValueError(
            f"judge.temperature is 0, but {trainers[0]} learns from answers that differ; set it above 0, such as to 1"
        )
    if recipe.judge is not None and not users:
        raise ValueError("judge: no part of the recipe asks one, such as rewards judge_score; leave it out")
