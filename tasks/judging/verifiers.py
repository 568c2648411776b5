"""Verifiers by name: strict and lenient decisions on texts.

`exact_answer` and `whole_text` need no torch. Every other name is a reward of `rewardflow parts` that decides whether a
completion is right, with its settings as in a recipe: `{name: unit_tests, seconds: 5}`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from models.answers.answers import extract_answer, same_answer
from models.base.errors import UserError, listed, shortened
from models.datasets.strict_yaml import YamlError, parse_yaml
from tasks.judging.problems import JudgedProblem

if TYPE_CHECKING:
    from models.method.attempt import Verifying

EXACT, WHOLE = "exact_answer", "whole_text"
"""Names of the verifiers that need no torch: the marked answer of a text, and a text that is the answer alone."""


class AttemptedAnswer(NamedTuple):
    """A text that is to be verified."""

    problem: JudgedProblem
    text: str
    finished: bool


Decide = Callable[[Sequence[AttemptedAnswer]], list[float]]
"""Function that returns the value of each text, [texts], in [0, 1]."""


@dataclass(frozen=True)
class Verifier:
    """A verifier with its lenient form."""

    name: str
    strict: Decide
    """Whether a text is right as the verifier requires it."""
    lenient: Decide | None
    """Whether it is right in content, or how far; None: the verifier has no lenient form."""
    form: str = ""
    """What the lenient form accepts beyond the strict one, in words."""
    needs_answers: bool = True
    """Whether every problem must have an expected answer."""


def open_verifier(given: str) -> Verifier:
    """Return a verifier by its name, or by its name and settings in YAML.

    Raises:
        UserError: there is none of this name, or its settings are wrong.
    """
    if given == EXACT:
        return Verifier(EXACT, _exact, _exact_leniently, LAST_NUMBER)
    if given == WHOLE:
        return Verifier(WHOLE, _whole, _exact_leniently, LAST_NUMBER)
    settings: Any = {"name": given}
    if given.lstrip().startswith("{"):
        try:
            settings = parse_yaml(given)
        except YamlError as error:
            raise UserError(f"--verifier: {shortened(given)}: not valid YAML ({error})") from None
    return _of_part(settings)


LAST_NUMBER = "an answer without a mark (the last number or the whole text), and a text that was cut"


def _exact(tried: Sequence[AttemptedAnswer]) -> list[float]:
    given = [extract_answer(text) if finished else None for _, text, finished in tried]
    return [
        float(answer is not None and same_answer(answer, problem.answer))
        for answer, (problem, _, _) in zip(given, tried, strict=True)
    ]


def _exact_leniently(tried: Sequence[AttemptedAnswer]) -> list[float]:
    return [
        float(same_answer(extract_answer(text, last_number=True), problem.answer) or same_answer(text, problem.answer))
        for problem, text, _ in tried
    ]


def _whole(tried: Sequence[AttemptedAnswer]) -> list[float]:
    return [float(finished and same_answer(text, problem.answer)) for problem, text, finished in tried]


def _of_part(settings: Any) -> Verifier:
    from pydantic import TypeAdapter, ValidationError

    from models.method.attempt import Verifying
    from models.method.registry import parts

    name = settings.get("name") if isinstance(settings, dict) else None
    known = {
        part: cls
        for part, cls in parts("rewards").items()
        if issubclass(cls, Verifying) and cls.right is not Verifying.right
    }
    if name not in known:
        near = difflib.get_close_matches(str(name), [WHOLE, *known], n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"--verifier: no verifier {shortened(name, 40)!r}{meant} (there are {listed([WHOLE, *known])})")
    try:
        part: Any = TypeAdapter(known[name]).validate_python(settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"--verifier {name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if hasattr(part, "try_out"):
        part.try_out()
    return Verifier(name, _strict(part), *_lenient(part), needs_answers=part.needs_answers)


def _strict(part: Verifying) -> Decide:
    def strict(tried: Sequence[AttemptedAnswer]) -> list[float]:
        return [float(right) for right in part.right(_attempts(tried))]

    return strict


def _lenient(part: Verifying) -> tuple[Decide | None, str]:
    """Return the lenient form of a part: its partial credit, or its decision on a text whose answer is marked."""
    from models.method.problem import Problem

    if part.grades:
        return lambda tried: part.grade(_attempts(tried)), "the share of the requirements that a text meets"
    stated = part.stated(Problem("probe", "", "1")) if part.needs_answers else None
    if stated is None or extract_answer(stated) is None:
        return None, ""

    def lenient(tried: Sequence[AttemptedAnswer]) -> list[float]:
        return [float(right) for right in part.right(_attempts([_marked(each) for each in tried]))]

    return lenient, LAST_NUMBER


def _marked(tried: AttemptedAnswer) -> AttemptedAnswer:
    """Return a text with its answer marked: the last number, or else the whole text."""
    if extract_answer(tried.text) is not None:
        return tried._replace(finished=True)
    answer = extract_answer(tried.text, last_number=True) or tried.text.strip()
    return tried._replace(text=f"\\boxed{{{answer}}}", finished=True)


def _attempts(tried: Sequence[AttemptedAnswer]) -> list[Any]:
    from models.method.attempt import Attempt
    from models.method.problem import Problem

    return [
        Attempt(
            Problem(p.id, p.prompt, p.answer, p.level, tests=p.tests, entry_point=p.entry_point, system=p.system),
            text,
            finished,
        )
        for p, text, finished in tried
    ]
