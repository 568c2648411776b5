"""Data of a problem that the environment knows and the policy does not: JSON in the problem's answer.

It is stored in the same row as the prompt, and the policy never reads it. The environment may reveal parts of it in its
own words, turn by turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from models.base.errors import UserError, shortened
from models.method.problem import Problem


class Hidden(BaseModel):
    """Typed fields of a problem's answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Known = TypeVar("Known", bound=Hidden)


def hidden(problem: Problem, kind: type[Known], environment: str) -> Known:
    """Parse the hidden data of `problem`.

    Args:
        problem: problem whose answer is JSON.
        kind: model of the fields.
        environment: name of the environment that the problem must belong to, for the message.

    Raises:
        UserError: the problem does not belong to the environment.
    """
    try:
        return kind.model_validate_json(problem.answer)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"problem {shortened(problem.id)}: the answer is none of environment {environment} "
            f"({f'{where}: ' if where else ''}{first['msg']})"
        ) from None


def hidden_of_each(problems: Sequence[Problem], kind: type[Known], of: str) -> list[Known | None]:
    """Parse the hidden data of each problem, [problems]; None for an answer that cannot be parsed.

    So one broken row of a data set does not end a run. Equal problems are parsed once.

    Raises:
        UserError: none can be parsed; they are the data of something else.
    """
    known: dict[Problem, Known | None] = {}
    refused: UserError | None = None
    for problem in dict.fromkeys(problems):
        try:
            known[problem] = hidden(problem, kind, of)
        except UserError as error:
            known[problem], refused = None, refused or error
    if refused is not None and not any(known.values()):
        raise refused
    return [known[problem] for problem in problems]
