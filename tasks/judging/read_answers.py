"""Answers from a file: recognised by its first row, or by its suffix and content for a log of inspect-ai."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from models.base.errors import UserError, listed, shortened
from models.base.strict_json import JsonError, parse_json
from models.datasets.raw import read_batches
from models.datasets.text_files import not_utf8
from tasks.judging.answers import AnswerSet, GivenAnswer
from tasks.judging.log_formats import LINE_FORMATS, Row, read_inspect, recognised

SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
INSPECT_ARCHIVE = ".eval"
"""Suffix of the logs that inspect-ai writes by default: archives, not JSON."""


def read_answers(file: Path, source: str) -> AnswerSet:
    """Read the answers of a file.

    Args:
        file: answers in the own format, or a log of another program (`tasks.judging.log_formats`).
        source: the source as the user named it.

    Raises:
        UserError: the file cannot be read, is of no known format, or gives one problem two prompts.
    """
    suffix = file.suffix.lower()
    if suffix == INSPECT_ARCHIVE:
        raise UserError(f"{file}: an archive of inspect-ai; `inspect log convert --to json` writes it as .json")
    if suffix not in SUFFIXES:
        raise UserError(f"{file}: a file of answers is {', '.join(SUFFIXES)}")
    log = _whole_log(file) if suffix == ".json" else None
    notes: tuple[str, ...] = ()
    if log is not None:
        kind, answers = "inspect", tuple(read_inspect(str(file), log))
        if log.get("status") != "success":
            notes = (f"{source}: the status of the log is {shortened(log.get('status'), 40)!r}, not success",)
    else:
        rows = _rows(file)
        first = next(rows)
        kind = recognised(*first)
        answers = tuple(LINE_FORMATS[kind].read(chain([first], rows)))
    _check_prompts(answers)
    return AnswerSet(source, kind, answers, notes)


def log_in_folder(folder: Path) -> Path:
    """Return the only file of answers in a folder, as harnesses write their logs.

    Raises:
        UserError: there is none, or more than one.
    """
    files = [
        file
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in (*SUFFIXES, INSPECT_ARCHIVE) and not file.name.startswith(("results_", "."))
    ]
    if len(files) != 1:
        names = [str(file.relative_to(folder)) for file in files]
        hint = f"name one of its files ({listed(names)})" if files else f"it has no file of {', '.join(SUFFIXES)}"
        raise UserError(f"{folder}: not a model folder (no config.json), and not one log; {hint}")
    return files[0]


def _rows(file: Path) -> Iterator[tuple[str, Row]]:
    for batch in read_batches([file]):
        for raw in batch.rows():
            yield raw.place, {name: raw.values[name] for name in raw.values}


def _whole_log(file: Path) -> Mapping[str, Any] | None:
    """Return the content of a log of inspect-ai; None if the file holds a list of rows.

    Raises:
        UserError: it is not JSON, or an object of another kind.
    """
    try:
        content = parse_json(file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise UserError(not_utf8(file)) from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    except JsonError as error:
        raise UserError(f"{file}, line {error.line}: not valid JSON ({error.reason})") from None
    if isinstance(content, list):
        return None
    if not isinstance(content, Mapping) or "eval" not in content:
        raise UserError(f"{file}: neither a list of rows nor a log of inspect-ai (an object with eval and samples)")
    return content


def _check_prompts(answers: tuple[GivenAnswer, ...]) -> None:
    """Refuse a file in which one id has two prompts: it holds several tasks, whose ids are not distinct."""
    prompts: dict[str, GivenAnswer] = {}
    for answer in answers:
        if answer.problem and answer.prompt:
            first = prompts.setdefault(answer.problem, answer)
            if first.prompt != answer.prompt:
                raise UserError(
                    f"{answer.place}: the problem {shortened(answer.problem, 40)!r} has another prompt at "
                    f"{first.place}; several tasks in one file are judged one by one"
                )
