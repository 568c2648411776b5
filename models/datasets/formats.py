"""The shapes of raw data that are understood, each turned into problems, demonstrations and preferences.

    gsm8k           question, answer = worked solution whose last line is `#### 72`; calculator notes <<48/2=24>> go
    hh              chosen, rejected = whole dialogues; the prompt is what both share, up to the last `\\n\\nAssistant:`
    humaneval       prompt, canonical_solution, test, entry_point
    problems        prompt, answer
    demonstrations  prompt, completion
    preferences     prompt, chosen, rejected
                    (in these three a prompt or an answer may be messages, see `messages.py`)
    kinds           a folder with a file for each of the last three, a column `split` where the split is given

The settings' `columns` say which column of the user's file stands for which field. A row that lacks a value gets "",
which the validation of the data finds and reports row by row; a column that no row has is an error here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Literal

from models.datasets.messages import columns_of_messages, read_fields
from models.datasets.raw import RawRow, files_of, read_files
from models.datasets.schema import KINDS, SPLITS, Kind, Row, Split
from models.errors import UserError, listed, shortened

CALCULATOR_NOTE = re.compile(r"<<[^<>]*>>")
FINAL_ANSWER = "####"
ASSISTANT = "\n\nAssistant:"
WHOLE_NUMBER = re.compile("[0-9]+")
HIGHEST_LEVEL = 1_000_000
HELD_OUT: Literal["test"] = "test"
"""What data call rows that are held out and no more; see models.datasets.prepare.divide_held_out."""

Fields = Mapping[str, str]
Converted = dict[Kind, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Record:
    """A row of one kind, without ids. `split` is None where the prompt's hash decides."""

    kind: Kind
    split: Split | Literal["test"] | None
    """`test` is held out, and the prompt's hash divides it between validation and gate."""
    row: Row


@dataclass(frozen=True, slots=True)
class Format:
    """A shape of raw rows. `columns` maps its fields to the column names that they have unless the user says more."""

    columns: Mapping[str, str]
    convert: Callable[[Fields], Converted]
    optional: frozenset[str] = field(default_factory=frozenset)
    recognised: Callable[[Fields], bool] = lambda fields: True
    """Whether a row has the shape at all; data in which no row has it is refused."""
    shape: str = ""
    """What `recognised` looks for, in words."""


def strip_calculator_notes(text: str) -> str:
    """The text without the notes `<<48/2=24>>` that GSM8K puts behind a calculation."""
    return CALCULATOR_NOTE.sub("", text)


def final_answer(solution: str) -> str:
    """What stands behind the last `####`, thousands' commas removed; "" where there is no `####`."""
    _, mark, answer = solution.rpartition(FINAL_ANSWER)
    return answer.strip().replace(",", "") if mark else ""


def split_dialogues(chosen: str, rejected: str) -> tuple[str, str, str]:
    """The prompt that two dialogues share, and the rest of each.

    The prompt is everything up to and including the last `\\n\\nAssistant:` of the common beginning; "" where the
    common beginning has none. White space around the two answers is removed.
    """
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False)))
    common = chosen[:same]
    start = common.rfind(ASSISTANT)
    prompt = common[: start + len(ASSISTANT)] if start >= 0 else ""
    return prompt, chosen[len(prompt) :].strip(), rejected[len(prompt) :].strip()


def _gsm8k(fields: Fields) -> Converted:
    prompt = fields["prompt"].strip()
    solution = strip_calculator_notes(fields["answer"]).strip()
    answer = final_answer(solution)
    return {
        "problems": {"prompt": prompt, "answer": answer},
        "demonstrations": {"prompt": prompt, "completion": solution, "answer": answer},
    }


def _hh(fields: Fields) -> Converted:
    prompt, chosen, rejected = split_dialogues(fields["chosen"], fields["rejected"])
    return _preferences({"prompt": prompt, "chosen": chosen, "rejected": rejected})


def _humaneval(fields: Fields) -> Converted:
    prompt = fields["prompt"]
    return {
        "problems": {"prompt": prompt, "tests": fields["tests"], "entry_point": fields["entry_point"]},
        "demonstrations": {"prompt": prompt, "completion": fields["completion"]},
    }


def _problems(fields: Fields) -> Converted:
    return {"problems": dict(fields)}


def _demonstrations(fields: Fields) -> Converted:
    problem = {name: value for name, value in fields.items() if name in ("prompt", "answer", "level")}
    return {"problems": problem, "demonstrations": dict(fields)}


def _preferences(fields: Fields) -> Converted:
    problem = {name: value for name, value in fields.items() if name in ("prompt", "level")}
    demonstration = {**problem, "completion": fields["chosen"]}
    return {"problems": problem, "demonstrations": demonstration, "preferences": dict(fields)}


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


FORMATS: dict[str, Format] = {
    "gsm8k": Format(
        {"prompt": "question", "answer": "answer"},
        _gsm8k,
        recognised=lambda fields: FINAL_ANSWER in fields["answer"],
        shape="a solution that ends in `#### ANSWER`",
    ),
    "hh": Format(
        _same("chosen", "rejected"),
        _hh,
        recognised=lambda fields: split_dialogues(fields["chosen"], fields["rejected"])[0] != "",
        shape="two dialogues that share their beginning up to `\\n\\nAssistant:`",
    ),
    "humaneval": Format(
        {"prompt": "prompt", "completion": "canonical_solution", "tests": "test", "entry_point": "entry_point"},
        _humaneval,
    ),
    "problems": Format(
        _same("prompt", "answer", "level", "tests", "entry_point", "split"),
        _problems,
        optional=frozenset({"answer", "level", "tests", "entry_point", "split"}),
    ),
    "demonstrations": Format(
        _same("prompt", "completion", "answer", "level", "flaw", "split"),
        _demonstrations,
        optional=frozenset({"answer", "level", "flaw", "split"}),
    ),
    "preferences": Format(
        _same("prompt", "chosen", "rejected", "level", "flaw", "split"),
        _preferences,
        optional=frozenset({"level", "flaw", "split"}),
    ),
}
SPLIT_IF_NAMED = "split"
"""A column `split` is taken for the row's split only where the settings name it or the format is `kinds`."""


def columns_of(name: str, mapping: Mapping[str, str], rows: Sequence[RawRow]) -> dict[str, str]:
    """Field -> column of these rows, for the format of that name; optional fields whose column no row has are left out.

    Raises:
        UserError: the mapping names an unknown field, or a column that no row has.
    """
    shape = FORMATS[name]
    for given in mapping:
        if given not in shape.columns:
            known = ", ".join(shape.columns)
            raise UserError(f"data.columns: the format {name} has no field '{shortened(given)}' (its fields: {known})")
    present = {column for row in rows for column in row.values}
    columns: dict[str, str] = {}
    for wanted, default in columns_of_messages(shape.columns, rows).items():
        column = mapping.get(wanted, default).strip()
        if column in present:
            columns[wanted] = column
        elif wanted in mapping or wanted not in shape.optional:
            named = f"data.columns.{wanted}" if wanted in mapping else f"the field '{wanted}' (name it in data.columns)"
            raise UserError(
                f"{rows[0].file}: no column '{shortened(column)}' for {named}; the file has {listed(sorted(present))}"
            )
        elif wanted == "answer" and (near := [name for name in sorted(present) if name.casefold() == column]):
            raise UserError(
                f"{rows[0].file}: no column '{column}' but '{near[0]}'; data.columns={{answer: {near[0]}}} reads it"
            )
    return columns


def convert_rows(name: str, mapping: Mapping[str, str], rows: Sequence[RawRow], split_named: bool) -> list[Record]:
    """The records that rows of a format give, in order; `split_named` says whether a column `split` counts.

    Raises:
        UserError: as `columns_of`; no row has the format's shape; a level is no whole number; a split is unknown.
    """
    shape = FORMATS[name]
    columns = columns_of(name, mapping, rows)
    if not split_named:
        columns.pop(SPLIT_IF_NAMED, None)
    records: list[Record] = []
    recognised = False
    for raw in rows:
        fields = read_fields(raw, columns)
        split = _split(raw, fields.pop(SPLIT_IF_NAMED)) if SPLIT_IF_NAMED in fields else None
        recognised = recognised or shape.recognised(fields)
        for kind, values in shape.convert(fields).items():
            row: Row = {**values, "level": _level(raw, values["level"])} if "level" in values else {**values}
            records.append(Record(kind, split, row))
    if not recognised:
        raise UserError(f"{rows[0].file}: no row is of the format {name}, which is {shape.shape}")
    return records


def _level(raw: RawRow, text: str) -> int:
    if not text:
        return 0
    if not WHOLE_NUMBER.fullmatch(text.strip()):
        raise UserError(f"{raw.place}: level '{shortened(text, 40)}' is not a whole number")
    digits = text.strip().lstrip("0") or "0"
    if len(digits) > len(str(HIGHEST_LEVEL)) or int(digits) > HIGHEST_LEVEL:
        raise UserError(f"{raw.place}: level {shortened(text, 40)} is not within 0 and {HIGHEST_LEVEL}")
    return int(digits)


def _split(raw: RawRow, text: str) -> Split | Literal["test"]:
    for split in (*SPLITS, HELD_OUT):
        if text == split:
            return split
    raise UserError(f"{raw.place}: split '{shortened(text, 40)}' is none of {', '.join((*SPLITS, HELD_OUT))}")


def read_records(
    name: str, paths: Sequence[Path], mapping: Mapping[str, str], limit: int | None = None, key: str = "data.path"
) -> tuple[list[Record], list[Path]]:
    """The records of the files that the paths name, and those files.

    Raises:
        UserError: a file is missing or unreadable, has no rows, or is not of the format; the message names it.
    """
    files = files_of(paths, key)
    if name != "kinds":
        return convert_rows(name, mapping, read_files(files, limit), SPLIT_IF_NAMED in mapping), files
    records: list[Record] = []
    used: list[Path] = []
    for kind in KINDS:
        of_kind = [file for file in files if file.stem == kind or file.stem.startswith((f"{kind}_", f"{kind}-"))]
        if of_kind:
            converted = convert_rows(kind, {}, read_files(of_kind, limit), split_named=True)
            records += [record for record in converted if record.kind == kind]
            used += of_kind
    if not used:
        places = ", ".join(map(str, paths))
        raise UserError(f"{key}: {places} has no file problems.*, demonstrations.* or preferences.*")
    return records, used
