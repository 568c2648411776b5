"""Checks that the data contain the answers or tests that rewards need: without them every completion is wrong."""

from __future__ import annotations

from pathlib import Path

from models.base.errors import UserError
from models.base.sections import Sections
from models.datasets.schema import Kind, Split, available, table_pieces
from models.datasets.settings import DataSettings
from models.method.reward import Reward
from models.method.schedule import ScheduleSettings

KINDS_WITH_ANSWERS: tuple[Kind, ...] = ("problems", "demonstrations")


def _any_text(data: Path, kind: Kind, split: Split = "train", column: str = "answer") -> bool:
    pieces = table_pieces(data, kind, split)
    return any(str(text).strip() for piece in pieces for text in piece.column(column).to_pylist())


class DataSections(Sections):
    """The sections of the recipe that determine which data it needs."""

    data: DataSettings
    rewards: list[Reward]
    schedule: ScheduleSettings | None


def require_answers(data: Path, recipe: DataSections) -> None:
    """Check that the training rows have the answers or tests that the recipe's rewards need.

    Args:
        data: a prepared data set.
        recipe: the training that uses it.

    Raises:
        UserError: no training row has an answer although a reward needs them, or none has tests.
    """
    _require_tests(data, recipe)
    labels = [
        f"rewards.{number} ({reward.name})" for number, reward in enumerate(recipe.rewards) if reward.needs_answers
    ]
    if recipe.schedule is None or not labels:
        return
    splits = available(data)
    for kind in KINDS_WITH_ANSWERS:
        if "train" in splits.get(kind, ()) and _any_text(data, kind):
            return
    raise UserError(
        f"data set {recipe.data.name}: no training problem has an answer, which {labels[0]} holds completions against; "
        "name the column of answers in data.columns.answer, or take another reward"
    )


def _require_tests(data: Path, recipe: DataSections) -> None:
    labels = [f"rewards.{number} ({reward.name})" for number, reward in enumerate(recipe.rewards) if reward.needs_tests]
    if recipe.schedule is None or not labels:
        return
    if "train" not in available(data).get("problems", ()) or not _any_text(data, "problems", column="tests"):
        raise UserError(
            f"data set {recipe.data.name}: no training problem has tests, which {labels[0]} runs; name the column of "
            "tests in data.columns.tests, or take another reward"
        )


def require_held_out_answers(data: Path, name: str, verifier: Reward | None) -> None:
    """Check that a held-out set has the expected answers, or the tests, by which its answers are judged.

    Args:
        data: the prepared set.
        name: its name.
        verifier: decides which answers are right; None: the problems' answers do.

    Raises:
        UserError: none of its problems has an answer, or tests if the verifier runs them.
    """
    column = "tests" if verifier is not None and verifier.needs_tests else "answer"
    if "gate" not in available(data).get("problems", ()) or not _any_text(data, "problems", "gate", column):
        requirement = "has tests, which are run" if column == "tests" else "has an answer to compare completions with"
        raise UserError(
            f"gate.held_out.{name}: no problem {requirement}; name the column in gate.held_out.{name}.columns.{column}"
        )
