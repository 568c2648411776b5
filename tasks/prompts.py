"""The prompts of a run: rows of the clean data, encoded, with the answers that the data hold where they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from models.datasets.arithmetic import SOUND
from models.datasets.schema import Kind, available, read_rows
from models.errors import UserError
from models.loop import known_log_probs
from models.loop.learner import Learner
from models.loop.rollout import Known, Origin, Problem
from models.loop.schedule import ScheduleSettings
from models.loop.slots import Reference, Rollouts
from models.policy.build import PolicySettings
from models.text.encoding import Codec
from tasks.sections import Sections, of
from tasks.step import reference_folder

ANSWERS: dict[str, dict[str, Origin]] = {
    "demonstrations": {"completion": "demonstration"},
    "preferences": {"chosen": "chosen", "rejected": "rejected"},
}
"""Columns of a kind that hold answers, and what such an answer is to the loop."""


class LengthSections(Sections):
    """How long prompts and completions may be."""

    data_name: str = of("data.name")
    policy: PolicySettings
    longest_prompt: int = of("validation.max_tokens")
    longest_drawn: int = of("rollouts.max_tokens")
    longest_measured: int | None = of("evaluation.max_tokens")


class PromptSections(LengthSections):
    """What prompts the loop reads, and what it knows of them before it begins."""

    rollouts: Rollouts
    reference: Reference
    schedule: ScheduleSettings | None


def read_prompts(data: Path, codec: Codec, recipe: PromptSections) -> list[Problem]:
    """The training prompts that the recipe's source reads.

    Demonstrations of one prompt stand together; every preference is a prompt of its own.

    Raises:
        UserError: the data set has none, or none that fits the policy.
    """
    kind: Kind = recipe.rollouts.reads
    if kind == "problems":
        return with_room(read_problems(data, codec, "train", recipe), codec, recipe)
    if "train" not in available(data).get(kind, ()):
        raise UserError(f"the data set {recipe.data_name} has no training {kind}, which rollouts reads")
    answers = ANSWERS[kind]
    rows = read_rows(data, kind, "train")
    prompts = codec.prompts([str(row["prompt"]) for row in rows])
    encoded = {column: codec.completions([str(row[column]) for row in rows]) for column in answers}
    truths = _truths(data)
    most = recipe.rollouts.max_tokens
    room = longest_sequence(recipe, most)
    by_id: dict[str, Problem] = {}
    for number, (row, ids) in enumerate(zip(rows, prompts, strict=True)):
        known = tuple(
            Known(origin, tuple(encoded[column][number]), str(row[column]), _flaw(origin, str(row["flaw"])))
            for column, origin in answers.items()
        )
        longest = max(len(answer.completion) for answer in known)
        if not ids or longest > most or len(ids) + most > room:
            continue
        prompt_id = str(row["prompt_id"])
        key = prompt_id if kind == "demonstrations" else str(row["id"])
        if key in by_id:
            by_id[key] = replace(by_id[key], known=by_id[key].known + known)
            continue
        answer = str(row.get("answer", "")) or truths.get(prompt_id, "")
        by_id[key] = Problem(key, str(row["prompt"]), answer, int(row["level"]), tuple(ids), known)
    if not by_id:
        raise UserError(
            f"no training row of {recipe.data_name}'s {kind} has an answer within rollouts.max_tokens ({most}) and a "
            "prompt that leaves room for it"
        )
    return with_room(list(by_id.values()), codec, recipe)


def with_room(problems: Sequence[Problem], codec: Codec, recipe: PromptSections) -> list[Problem]:
    """Those of `problems` for which the policy has room with all that the recipe's source adds to them.

    Raises:
        UserError: there are none.
    """
    room = None if recipe.policy.base is not None else recipe.policy.size.positions
    extra = recipe.rollouts.extra_tokens(codec, problems)
    needed = [
        len(problem.tokens) + recipe.rollouts.max_tokens + more for problem, more in zip(problems, extra, strict=True)
    ]
    kept = [problem for problem, tokens in zip(problems, needed, strict=True) if room is None or tokens <= room]
    if not kept:
        raise UserError(
            f"policy.size.positions is {room}, but every sequence of rollouts {recipe.rollouts.name} needs more: "
            f"prompt, rollouts.max_tokens ({recipe.rollouts.max_tokens}) and what it adds are {min(needed)} at least"
        )
    return kept


def longest_in_training(problems: Sequence[Problem], codec: Codec, recipe: PromptSections) -> int:
    """Tokens of the longest sequence that the recipe's source draws, longer prompts of its own included."""
    if recipe.policy.base is None:
        return longest_sequence(recipe)
    return longest_sequence(recipe) + max(recipe.rollouts.extra_tokens(codec, problems))


def _truths(data: Path) -> dict[str, str]:
    """Final answers of the training problems, by id."""
    if "train" not in available(data).get("problems", ()):
        return {}
    return {str(row["id"]): str(row["answer"]) for row in read_rows(data, "problems", "train")}


def _flaw(origin: Origin, flaw: str) -> str:
    """The flaw of a preference is that of its worse answer; a sound demonstration has none."""
    return "" if origin == "chosen" or flaw == SOUND else flaw


def with_reference(problems: Sequence[Problem], learner: Learner, recipe: PromptSections, home: Path) -> list[Problem]:
    """`problems` whose known answers carry the log-probs of a reference that never moves, from the disk if they were
    computed before; unchanged where the recipe has no such reference or draws its completions."""
    budget = recipe.schedule.token_budget if recipe.schedule else 16384
    return known_log_probs.with_reference(
        problems, learner, recipe.rollouts, recipe.reference, budget, reference_folder(home)
    )


def read_problems(
    data: Path, codec: Codec, split: str, recipe: LengthSections, limit: int | None = None
) -> list[Problem]:
    """Encoded problems of a split that leave room for a completion; `limit` takes them evenly spaced.

    Which are trained on depends on the rollouts alone; those of the other splits also leave room for the evaluation's
    completions.

    Raises:
        UserError: the split has no problems, or none that fits the policy.
    """
    if split not in available(data).get("problems", ()):
        raise UserError(f"the data set {recipe.data_name} has no {split} problems to answer")
    rows = read_rows(data, "problems", split)  # type: ignore[arg-type]
    encoded = codec.prompts([row["prompt"] for row in rows])
    completion = recipe.longest_drawn if split == "train" else longest_completion(recipe)
    room = longest_sequence(recipe, completion) - completion
    problems = [
        Problem(str(row["id"]), str(row["prompt"]), str(row["answer"]), int(row["level"]), tuple(ids))
        for row, ids in zip(rows, encoded, strict=True)
        if 0 < len(ids) <= room
    ]
    if not problems:
        raise UserError(f"no {split} prompt of {recipe.data_name} leaves room for {completion} tokens of completion")
    if limit is None or limit >= len(problems):
        return problems
    return [problems[index * len(problems) // limit] for index in range(limit)]


def longest_completion(recipe: LengthSections) -> int:
    """Tokens that a completion may have, in rollouts or evaluations."""
    return max(recipe.longest_drawn, recipe.longest_measured or 0)


def longest_sequence(recipe: LengthSections, completion: int | None = None) -> int:
    """Tokens of the longest prompt and completion together.

    Args:
        recipe: bounds the prompts.
        completion: tokens that the completion may have; None: the most in rollouts or evaluations.
    """
    if recipe.policy.base is None:
        return recipe.policy.size.positions
    return recipe.longest_prompt + (longest_completion(recipe) if completion is None else completion)
