"""Reader of the demonstrations for the warm start, with the hints that may be added to their prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from models.agents.play.demonstrations import in_turns
from models.answers.exact import is_right
from models.datasets.row_table import BATCH_ROWS, Names, Row, RowTable, Texts, open_rows
from models.datasets.schema import SYSTEM, available
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings
from models.method.attempt import Attempt
from models.method.environment import Environment
from models.method.feedback import Feedback
from models.method.problem import Problem
from models.method.reward import Reward
from models.text.bridge import Role
from models.text.encoding import Codec


def demonstrations(
    data: Path,
    codec: Codec,
    split: str,
    longest: int,
    settings: SupervisedSettings | None = None,
    role: Role | None = None,
    verifier: Reward | None = None,
    adviser: Feedback | None = None,
    teaches: Environment | None = None,
) -> Sequences:
    """Return the encoded demonstrations of a split that fit into `longest` tokens; empty if the data set has none.

    Those of a large split are read only when they are drawn.

    Args:
        settings: which are left out, and which hint replaces a prompt; None: none.
        role: the environment's role in a chat template: they have several turns; None: each is one turn.
        verifier: decides which are right; None: their stated answers are checked.
        adviser: writes the feedback on a wrong one, if the hint is feedback.
        teaches: makes further demonstrations from those of the data; None: nothing does.
    """
    if split not in available(data).get("demonstrations", ()):
        return Sequences([], [])
    table = open_rows(data, "demonstrations", split)  # type: ignore[arg-type]
    settings = settings or SupervisedSettings()

    verified_ids = None if verifier is None or not settings.judges else _verified_ids(data, split, table, verifier)

    def right(row: Row) -> bool:
        if verified_ids is not None:
            return str(row["id"]) in verified_ids
        return is_right(str(row["completion"]), str(row["answer"]), finished=True)

    def column_reader(column: str) -> Callable[[Row], str | None]:
        return lambda row: str(row[column]) if not settings.only_right or right(row) else None

    prompt_readers, completion_readers = [column_reader("prompt")], [column_reader("completion")]
    if settings.context:
        hint_of = _hint_reader(table, settings, right, adviser)
        prompt_readers.append(lambda row: _context(row, settings, hint) if (hint := hint_of(row)) is not None else None)
        completion_readers.append(lambda row: str(row["completion"]) if hint_of(row) is not None else None)
    if teaches is not None:
        for of_side, readers in zip(_lesson_readers(teaches, right), (prompt_readers, completion_readers), strict=True):
            readers += of_side
    systems = Texts(table, tuple(map(_system_where, prompt_readers))) if table.has_systems else None
    prompts = codec.rows_of_prompts(Texts(table, tuple(prompt_readers)), systems)
    if role is not None:
        texts = (text for batch in Texts(table, tuple(completion_readers)) for text in batch)
        return in_turns(codec, role, zip(prompts, texts, strict=True), longest, settings.counts)
    completions = codec.rows_of_completions(Texts(table, tuple(completion_readers)))
    fitting = np.flatnonzero(prompts.lengths + completions.lengths <= longest)
    return Sequences(prompts.take(fitting).held(), completions.take(fitting).held())


def _lesson_readers(
    teaches: Environment, right: Callable[[Row], bool]
) -> tuple[list[Callable[[Row], str | None]], list[Callable[[Row], str | None]]]:
    """Return functions from a row to the prompt, and to the completion, of each lesson that it gives."""

    @lru_cache(maxsize=BATCH_ROWS)
    def made(name: str, prompt: str, solution: str, sound: bool) -> Sequence[tuple[str, str]]:
        return teaches.lessons(name, prompt, solution, sound)

    def reader(number: int, side: int) -> Callable[[Row], str | None]:
        def read(row: Row) -> str | None:
            lessons = made(str(row["id"]), str(row["prompt"]), str(row["completion"]), right(row))
            return lessons[number][side] if number < len(lessons) else None

        return read

    prompts, completions = ([reader(number, side) for number in range(teaches.most_lessons)] for side in (0, 1))
    return prompts, completions


def _system_where(text_of: Callable[[Row], str | None]) -> Callable[[Row], str | None]:
    """Return the system message of the rows that have a text by `text_of`."""
    return lambda row: str(row[SYSTEM]) if text_of(row) is not None else None


def _verified_ids(data: Path, split: str, table: RowTable, verifier: Reward) -> set[str]:
    """Return ids of the demonstrations that a verifier accepts, each as an attempt at the problem that it names."""
    lookup: tuple[Names, RowTable] | None = None
    if split in available(data).get("problems", ()):
        problems = open_rows(data, "problems", split)  # type: ignore[arg-type]
        lookup = Names(problems.column("id")), problems
    right: set[str] = set()
    for batch in table.batches():
        rows = batch.to_pylist()
        places = lookup[0].rows([str(row["prompt_id"]) for row in rows]) if lookup else [[]] * len(rows)
        problem_rows = (
            iter(lookup[1].rows([place for matches in places for place in matches[:1]])) if lookup else iter(())
        )
        attempts = [
            Attempt(_problem(row, next(problem_rows) if matches else {}), str(row["completion"]), finished=True)
            for row, matches in zip(rows, places, strict=True)
        ]
        right |= {str(row["id"]) for row, accepted in zip(rows, verifier.right(attempts), strict=True) if accepted}
    return right


def _problem(row: Row, problem: Row) -> Problem:
    """Build the problem of a demonstration, with the tests of its problem if there is one."""
    tests, entry_point = (str(problem.get(name) or "") for name in ("tests", "entry_point"))
    return Problem(
        str(row["prompt_id"]),
        str(row["prompt"]),
        str(row["answer"]),
        tests=tests,
        entry_point=entry_point,
        system=str(row.get(SYSTEM, "")),
    )


def _hint_reader(
    table: RowTable, settings: SupervisedSettings, right: Callable[[Row], bool], adviser: Feedback | None
) -> Callable[[Row], str | None]:
    """Return a function from a demonstration to the hint for its second copy; None: it is not repeated."""
    if settings.shows == "another":
        another = _another(table)
        return lambda row: another(row) if not settings.only_right or right(row) else None
    if settings.shows != "feedback":
        column = "answer" if settings.shows == "answer" else "completion"
        return lambda row: str(row[column]) if right(row) else None
    assert adviser is not None, "the recipe check makes sure that there is an adviser"
    rows_of = _rows_by_prompt(table)

    @lru_cache(maxsize=BATCH_ROWS)
    def of_prompt(prompt_id: str) -> str | None:
        wrong_row = next((row for row in rows_of(prompt_id) if not right(row)), None)
        if wrong_row is None:
            return None
        attempt = Attempt(_problem(wrong_row, {}), str(wrong_row["completion"]), finished=True)
        return f"{attempt.text} {adviser([attempt])[0].text}".strip()

    return lambda row: of_prompt(str(row["prompt_id"])) if right(row) else None


def _rows_by_prompt(table: RowTable) -> Callable[[str], list[Row]]:
    """Return a function from a prompt to its demonstrations, in the data's order."""
    names = Names(table.column("prompt_id"))
    return lambda prompt_id: table.rows(names.rows([prompt_id])[0])


def _another(table: RowTable) -> Callable[[Row], str | None]:
    """Return a function from a demonstration to the next one of the same prompt, and from the last to the first; None
    if there is not another."""
    rows_of = _rows_by_prompt(table)

    @lru_cache(maxsize=BATCH_ROWS)
    def of_prompt(prompt_id: str) -> dict[str, str]:
        return {str(row["id"]): str(row["completion"]) for row in rows_of(prompt_id)}

    def another(row: Row) -> str | None:
        completions = of_prompt(str(row["prompt_id"]))
        place = list(completions).index(str(row["id"]))
        return list(completions.values())[(place + 1) % len(completions)] if len(completions) > 1 else None

    return another


def _context(row: Row, settings: SupervisedSettings, hint: str) -> str:
    """Fill in the template with the prompt and the hint: its answer, its solution, or a flawed one with feedback."""
    return (settings.context or "").replace("{prompt}", str(row["prompt"])).replace("{shown}", hint)
