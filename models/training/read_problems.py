"""Reader of a run's prompts: rows of the validated data, encoded, with their known answers if needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from models.base.errors import UserError
from models.base.sections import Sections, of
from models.datasets.row_table import Names, RowTable, open_rows
from models.datasets.schema import Kind, available
from models.method.problem import Origin, Problem
from models.method.problem_rows import ProblemRows, Problems, grouped, prompt_lengths, taken
from models.method.rollout_source import Rollouts
from models.policies.aspects import InUse
from models.text.encoding import Codec
from models.training.row_lengths import added_tokens

ANSWERS: dict[str, dict[str, Origin]] = {
    "demonstrations": {"completion": "demonstration"},
    "preferences": {"chosen": "chosen", "rejected": "rejected"},
}
"""Kind of rows -> column with answers -> origin of these answers in the loop."""


class LengthSections(Sections):
    """Sections of a recipe that limit the length of prompts and completions."""

    data_name: str = of("data.name")
    data_template: str | None = of("data.template")
    policy: InUse = of("used_policy")
    longest_prompt: int = of("validation.max_tokens")
    longest_drawn: int = of("rollouts.max_tokens")
    longest_measured: int | None = of("evaluation.max_tokens")


class PromptSections(LengthSections):
    """Sections of a recipe that decide which prompts the loop reads, with their known answers."""

    rollouts: Rollouts


def read_prompts(data: Path, codec: Codec, recipe: PromptSections) -> Sequence[Problem]:
    """Return the training prompts that the source of rollouts reads; those of a large split are read when drawn.

    Demonstrations of one prompt are grouped; every preference is a prompt of its own.

    Raises:
        UserError: the data set has none, or none that fits the policy.
    """
    kind: Kind = recipe.rollouts.reads
    problems = (
        _problems(data, codec, "train", recipe) if kind == "problems" else _answered_problems(kind, data, codec, recipe)
    )
    return with_room(problems.held(), codec, recipe)


def _answered_problems(kind: Kind, data: Path, codec: Codec, recipe: PromptSections) -> Problems:
    """Return prompts with the answers in the data."""
    if "train" not in available(data).get(kind, ()):
        raise UserError(f"the data set {recipe.data_name} has no training {kind}, which rollouts reads")
    table = open_rows(data, kind, "train")
    prompts = codec.rows_of_prompts(table.column("prompt"), table.systems())
    answers = {
        column: (origin, codec.rows_of_completions(table.column(column))) for column, origin in ANSWERS[kind].items()
    }
    limit = recipe.rollouts.max_tokens
    longest = np.max([tokens.lengths for _, tokens in answers.values()], axis=0)
    lengths = prompts.lengths
    fitting = np.flatnonzero((lengths > 0) & (longest <= limit) & (lengths + limit <= longest_sequence(recipe, limit)))
    if not len(fitting):
        raise UserError(
            f"no training row of {recipe.data_name}'s {kind} has an answer within rollouts.max_tokens ({limit}) and a "
            "prompt that leaves room for it"
        )
    key = "prompt_id" if kind == "demonstrations" else "id"
    return Problems(ProblemRows(table, key, prompts, answers, _truths(data)), *grouped(table, key, fitting))


def with_room(problems: Sequence[Problem], codec: Codec, recipe: PromptSections) -> Sequence[Problem]:
    """Return the problems whose sequences, with all that the source of rollouts adds, fit into the policy's positions.

    Raises:
        UserError: there are none.
    """
    room = recipe.policy.room
    if room is None:
        return problems
    needed = prompt_lengths(problems) + recipe.rollouts.max_tokens + added_tokens(recipe.rollouts, codec, problems)
    if not (needed <= room).any():
        raise UserError(
            f"policy.size.positions is {room}, but every sequence of rollouts {recipe.rollouts.name} needs more: "
            f"prompt, rollouts.max_tokens ({recipe.rollouts.max_tokens}) and what it adds are {needed.min()} at least"
        )
    return taken(problems, np.flatnonzero(needed <= room))


def longest_in_training(problems: Sequence[Problem], codec: Codec, recipe: PromptSections) -> int:
    """Return the length of the longest sequence that the source of rollouts draws, its longer prompts included."""
    if recipe.policy.room is not None:
        return longest_sequence(recipe)
    return longest_sequence(recipe) + int(added_tokens(recipe.rollouts, codec, problems).max())


def _truths(data: Path) -> tuple[Names, RowTable] | None:
    """Return the training problems, which hold the final answers, by id."""
    if "train" not in available(data).get("problems", ()):
        return None
    table = open_rows(data, "problems", "train")
    return Names(table.column("id")), table


def read_problems(
    data: Path, codec: Codec, split: str, recipe: LengthSections, limit: int | None = None, hardest: int | None = None
) -> list[Problem]:
    """Return the encoded problems of a split that leave room for a completion.

    With `hardest`, only those of this level or below. With `limit`, so many of these, evenly spaced.

    The training problems depend only on the rollouts; those of the other splits also leave room for the evaluation's
    completions.

    Raises:
        UserError: the split has no problems, or none that fits the policy, or none that is easy enough.
    """
    problems = _problems(data, codec, split, recipe)
    if hardest is not None:
        problems = problems.take(np.flatnonzero(problems.levels <= hardest))
        if not len(problems):
            raise UserError(f"the data set {recipe.data_name} has no {split} problems of level {hardest} or below")
    if limit is None or limit >= len(problems):
        return list(problems)
    return list(problems.take(np.arange(limit) * len(problems) // limit))


def _problems(data: Path, codec: Codec, split: str, recipe: LengthSections) -> Problems:
    if split not in available(data).get("problems", ()):
        raise UserError(f"the data set {recipe.data_name} has no {split} problems to answer")
    table = open_rows(data, "problems", split)  # type: ignore[arg-type]
    prompts = codec.rows_of_prompts(table.column("prompt"), table.systems())
    completion = recipe.longest_drawn if split == "train" else longest_completion(recipe)
    room = longest_sequence(recipe, completion) - completion
    fitting = np.flatnonzero((prompts.lengths > 0) & (prompts.lengths <= room))
    if not len(fitting):
        raise UserError(f"no {split} prompt of {recipe.data_name} leaves room for {completion} tokens of completion")
    return Problems(ProblemRows(table, "id", prompts, {}), fitting)


def longest_completion(recipe: LengthSections) -> int:
    """Return the largest number of tokens that a completion may have, in rollouts or evaluations."""
    return max(recipe.longest_drawn, recipe.longest_measured or 0)


def longest_sequence(recipe: LengthSections, completion: int | None = None) -> int:
    """Return the tokens of the longest prompt and completion together.

    Args:
        recipe: bounds the prompts.
        completion: tokens that the completion may have; None: the most in rollouts or evaluations.
    """
    if recipe.policy.room is not None:
        return recipe.policy.room
    return recipe.longest_prompt + (longest_completion(recipe) if completion is None else completion)
