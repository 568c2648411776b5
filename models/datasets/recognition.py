"""Recognition of the shape of data files: their format, and the columns that its fields are read from.

The names of the files and of the columns decide, and the values of the first row if the names leave a choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from models.base.errors import UserError, listed
from models.datasets.data_files import data_files
from models.datasets.formats import ASSISTANT, FINAL_ANSWER, FORMATS
from models.datasets.hub_reference import DataPath
from models.datasets.messages import CONVERSATIONS, conversation_in
from models.datasets.raw import RawRow, read_batches
from models.datasets.schema import KINDS
from models.datasets.settings import DataSettings, FormatName
from models.datasets.shards import columns_in
from models.datasets.sources import is_of_kind

QUESTIONS, SOLUTIONS = ("prompt", "problem", "question"), ("solution", "response")
"""Names of the column of a problem without a format of its own, and of its worked answer."""


@dataclass(frozen=True)
class Recognised:
    """The shape of data files."""

    format: FormatName
    columns: dict[str, str] = field(default_factory=dict)
    """Field -> column, for the fields whose column has another name than the format's, those given included."""


def recognise(paths: Sequence[DataPath], columns: Mapping[str, str]) -> Recognised:
    """Recognise the shape of files from their names and the first rows of the first file.

    Args:
        paths: the paths, as in `data.path`.
        columns: field -> column, for columns with other names.

    Raises:
        UserError: the shape is not a known one.
    """
    files = [file.path for file in data_files(paths)]
    if all(any(is_of_kind(file, kind) for kind in KINDS) for file in files) and not columns:
        return Recognised("kinds")
    row, present = columns_in(next(read_batches(files[:1])))
    known = _known_shape(row, present, columns)
    if known is None:
        raise UserError(
            f"{files[0]}: no known shape (columns: {listed(sorted(present))}); name it with --format, and its columns "
            "with --column FIELD=COLUMN"
        )
    return Recognised(known.format, {**known.columns, **columns})


def with_known_format(settings: DataSettings, *, kinds: bool = False) -> DataSettings:
    """Return the settings with the recognised format and columns if the format is `auto`.

    Args:
        settings: the `data:` section.
        kinds: whether the format may be `kinds`. A recipe must name it, because it decides how splits are made.

    Raises:
        UserError: the shape is not a known one, or is a folder of kinds.
    """
    if settings.format != "auto" or settings.path is None:
        return settings
    known = recognise(settings.path, settings.columns)
    if known.format == "kinds" and not kinds:
        raise UserError("data.format: auto does not read files that are named as kinds; set data.format=kinds")
    return settings.model_copy(update={"format": known.format, "columns": known.columns})


def _known_shape(row: RawRow, present: AbstractSet[str], columns: Mapping[str, str]) -> Recognised | None:
    """Return the shape of a first row, with the columns that are not the format's own; None if it is not known."""

    def has(*fields: str) -> bool:
        return all(columns.get(name, name) in present for name in fields)

    whole = next((name for name in CONVERSATIONS if name in present), None)
    messages = conversation_in(row, whole) if whole is not None else None
    if {"question", "answer"} <= present and FINAL_ANSWER in str(row.values.get("answer")):
        return Recognised("gsm8k")
    if {"canonical_solution", "test", "entry_point"} <= present:
        return Recognised("humaneval")
    if has("chosen", "rejected"):
        dialogues = not has("prompt") and ASSISTANT in str(row.values.get("chosen"))
        return Recognised("hh" if dialogues else "preferences")
    return _with_candidates(present, has("prompt"), has("completion")) or _with_one_answer(
        present, columns, messages[-1]["role"] if messages else "", completed=has("completion")
    )


def _with_candidates(present: AbstractSet[str], prompt: bool, completion: bool) -> Recognised | None:
    """Return the shape of rows with scored completions."""
    if prompt and {"completions", "labels"} <= present:
        return Recognised("stepwise")
    if "completions" in present and (prompt or "instruction" in present):
        return Recognised("ultrafeedback", {} if "instruction" in present else {"prompt": "prompt"})
    if prompt and completion and "label" in present:
        return Recognised("kto")
    return Recognised("helpsteer") if prompt and {"response", "helpfulness"} <= present else None


def _with_one_answer(
    present: AbstractSet[str], columns: Mapping[str, str], last_role: str, *, completed: bool
) -> Recognised | None:
    """Return the shape of rows with at most one answer.

    Args:
        present: columns of the rows.
        columns: field -> column, as given.
        last_role: role of the last message of a conversation; "" if there is none.
        completed: whether there is a column of completions.
    """
    if "instruction" in present and (answers := [name for name in ("output", "response") if name in present]):
        other = {"completion": answers[0]} if answers[0] != FORMATS["alpaca"].columns["completion"] else {}
        given = {"input": "context"} if "context" in present and "input" not in present else {}
        return Recognised("alpaca", {**given, **other})
    prompt = columns.get("prompt") or next((name for name in QUESTIONS if name in present), "")
    own = {"prompt": prompt} if prompt != "prompt" else {}
    answered = columns.get("answer", "answer") in present
    solution = next((name for name in SOLUTIONS if name in present and name not in columns.values()), "")
    if prompt and not completed and solution:
        return Recognised("demonstrations", {**own, "completion": solution})
    if completed or (last_role == "assistant" and not answered):
        return Recognised("demonstrations", own if prompt else {})
    if prompt in present and (answered or prompt == columns.get("prompt", "prompt")):
        return Recognised("problems", own)
    return Recognised("problems") if last_role else None
