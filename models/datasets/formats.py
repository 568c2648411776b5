"""The known shapes of raw data, and their conversion into problems, demonstrations and preferences.

    gsm8k           question, answer = worked solution whose last line is `#### 72`; notes <<48/2=24>> are removed
    hh              chosen, rejected = whole dialogues; the prompt is what both share, up to the last `\\n\\nAssistant:`
    humaneval       prompt, canonical_solution, test, entry_point
    problems        prompt, answer
    demonstrations  prompt, completion
    preferences     prompt, chosen, rejected
                    (in these three a prompt or an answer may be messages, see `messages.py`; a column `system` holds a
                    system message)
    alpaca          instruction, output; input if present; the prompt is the instruction, a blank line and the input
    ultrafeedback, helpsteer, kto, stepwise
                    completions with scores or labels, see `candidates.py`
    kinds           a folder with a file for each of problems, demonstrations and preferences, with a column `split` if
                    the split is given

The setting `columns` maps each field to a column of the user's file. A missing value becomes "", which the validation
of the data finds and reports row by row; a column that no row has is an error here.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from models.base.errors import UserError, listed, shortened
from models.datasets.candidates import CandidateRow, CandidateShape, judge, unread_keys
from models.datasets.messages import FieldTexts, columns_of_messages, read_fields
from models.datasets.raw import RawRow
from models.datasets.schema import KINDS, SPLITS, SYSTEM, Kind, Row, Split

CALCULATOR_NOTE = re.compile(r"<<[^<>]*>>")
FINAL_ANSWER = "####"
HUMAN, ASSISTANT = "\n\nHuman:", "\n\nAssistant:"
WHOLE_NUMBER = re.compile("[0-9]+")
HIGHEST_LEVEL = 1_000_000
HELD_OUT: Literal["test"] = "test"
"""Split of rows that are held out without a choice of validation or gate; see
models.datasets.splits.divide_held_out."""

Fields = Mapping[str, str]
Converted = dict[Kind, dict[str, str]]


GivenSplit = Split | Literal["test"] | None
"""The split that the data give for a row: `test` is held out, and the prompt's hash divides it between validation and
gate; None: the prompt's hash decides."""


@dataclass(frozen=True, slots=True)
class Record:
    """Content of a raw row, without ids: at most one row of each kind that its format gives, all with the same prompt;
    always a problem or the format's only kind."""

    split: GivenSplit
    rows: Mapping[Kind, Row]
    recognised: bool
    """Whether the row has the shape of its format; data in which no row has it are refused."""
    unread: frozenset[str] = frozenset()
    """Keys of its messages and completions that are not read."""
    unused: int = 0
    """Number of its completions that are in no row, because no other completion of the prompt has another score."""


@dataclass(frozen=True, slots=True)
class Format:
    """A shape of raw rows. `columns` maps its fields to their default column names."""

    columns: Mapping[str, str]
    convert: Callable[[Fields], Converted]
    kinds: tuple[Kind, ...]
    """Kinds that a row becomes: the keys of the result of `convert`, or those of any of its completions."""
    optional: frozenset[str] = field(default_factory=frozenset)
    recognised: Callable[[Fields], bool] = lambda fields: True
    """Whether a row has the shape at all; data in which no row has it are refused."""
    shape: str = ""
    """Description of the shape that `recognised` checks for."""
    candidates: CandidateShape | None = None
    """The way in which its rows hold scored completions; None: a row has at most one answer of each kind."""


def strip_calculator_notes(text: str) -> str:
    """Return the text without the notes `<<48/2=24>>` that GSM8K puts after a calculation."""
    return CALCULATOR_NOTE.sub("", text)


def final_answer(solution: str) -> str:
    """Return the text after the last `####`, without the commas between thousands; "" if there is no `####`."""
    _, mark, answer = solution.rpartition(FINAL_ANSWER)
    return answer.strip().replace(",", "") if mark else ""


def split_dialogues(chosen: str, rejected: str) -> tuple[str, str, str]:
    """Return the prompt that two dialogues share, and the rest of each.

    The prompt is everything up to and including the last `\\n\\nAssistant:` of the common beginning; "" if the
    common beginning has none. White space around the two answers is removed.
    """
    common = chosen[: bisect_left(range(min(len(chosen), len(rejected))), True, key=_differ(chosen, rejected))]
    start = common.rfind(ASSISTANT)
    prompt = common[: start + len(ASSISTANT)] if start >= 0 else ""
    return prompt, chosen[len(prompt) :].strip(), rejected[len(prompt) :].strip()


def _differ(text: str, other: str) -> Callable[[int], bool]:
    """Return a function that returns whether two texts differ up to and including a place."""
    return lambda place: text[: place + 1] != other[: place + 1]


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
    if HUMAN in chosen and HUMAN in rejected:
        prompt = ""  # they answer different questions: a row without a prompt is set aside
    return _preferences({"prompt": prompt, "chosen": chosen, "rejected": rejected})


def _humaneval(fields: Fields) -> Converted:
    prompt = fields["prompt"]
    return {
        "problems": {"prompt": prompt, "tests": fields["tests"], "entry_point": fields["entry_point"]},
        "demonstrations": {"prompt": prompt, "completion": fields["completion"]},
    }


def _problems(fields: Fields) -> Converted:
    return {"problems": dict(fields)}


def _alpaca(fields: Fields) -> Converted:
    instruction, given = fields["prompt"], fields.get("input", "")
    prompt = f"{instruction}\n\n{given}" if given.strip() else instruction
    return {"problems": {"prompt": prompt}, "demonstrations": {"prompt": prompt, "completion": fields["completion"]}}


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
        ("problems", "demonstrations"),
        recognised=lambda fields: FINAL_ANSWER in fields["answer"],
        shape="a solution that ends in `#### ANSWER`",
    ),
    "hh": Format(
        _same("chosen", "rejected"),
        _hh,
        KINDS,
        recognised=lambda fields: split_dialogues(fields["chosen"], fields["rejected"])[0] != "",
        shape="two dialogues that share their beginning up to `\\n\\nAssistant:`",
    ),
    "humaneval": Format(
        {"prompt": "prompt", "completion": "canonical_solution", "tests": "test", "entry_point": "entry_point"},
        _humaneval,
        ("problems", "demonstrations"),
    ),
    "problems": Format(
        _same("prompt", "answer", "level", "tests", "entry_point", "split", "system"),
        _problems,
        ("problems",),
        optional=frozenset({"answer", "level", "tests", "entry_point", "split", "system"}),
    ),
    "demonstrations": Format(
        _same("prompt", "completion", "answer", "level", "flaw", "split", "system"),
        _demonstrations,
        ("problems", "demonstrations"),
        optional=frozenset({"answer", "level", "flaw", "split", "system"}),
    ),
    "preferences": Format(
        _same("prompt", "chosen", "rejected", "level", "flaw", "split", "system"),
        _preferences,
        KINDS,
        optional=frozenset({"level", "flaw", "split", "system"}),
    ),
    "alpaca": Format(
        {"prompt": "instruction", "input": "input", "completion": "output", "split": "split", "system": "system"},
        _alpaca,
        ("problems", "demonstrations"),
        optional=frozenset({"input", "split", "system"}),
    ),
    "ultrafeedback": Format(
        {"prompt": "instruction", **_same("completions", "split", "system")},
        _preferences,
        KINDS,
        optional=frozenset({"split", "system"}),
        candidates=CandidateShape("completions", "listed", labels=False, grouped=False),
    ),
    "helpsteer": Format(
        {"prompt": "prompt", "completion": "response", "score": "helpfulness", **_same("split", "system")},
        _preferences,
        KINDS,
        optional=frozenset({"split", "system"}),
        candidates=CandidateShape("completion", "rows", labels=False, grouped=True),
    ),
    "kto": Format(
        _same("prompt", "completion", "label", "split", "system"),
        _preferences,
        KINDS,
        optional=frozenset({"split", "system"}),
        candidates=CandidateShape("completion", "rows", labels=True, grouped=True),
    ),
    "stepwise": Format(
        {**_same("prompt", "completions"), "label": "labels", **_same("split", "system")},
        _preferences,
        KINDS,
        optional=frozenset({"split", "system"}),
        candidates=CandidateShape("completions", "steps", labels=True, grouped=True),
    ),
}
SPLIT_IF_NAMED = "split"
"""A column `split` is used as the row's split only if the settings name it or the format is `kinds`."""


def columns_of(name: str, mapping: Mapping[str, str], first: RawRow, present: AbstractSet[str]) -> dict[str, str]:
    """Return field -> column for a format; optional fields whose column no row has are left out.

    Args:
        name: name of the format.
        mapping: field -> column, from the settings.
        first: the first row, which shows whether prompts are messages.
        present: columns that any row has.

    Raises:
        UserError: the mapping names an unknown field, or no row has a column that is named or required.
    """
    shape = FORMATS[name]
    for given in mapping:
        if given not in shape.columns:
            known = ", ".join(shape.columns)
            raise UserError(f"data.columns: the format {name} has no field '{shortened(given)}' (its fields: {known})")
    columns: dict[str, str] = {}
    own = {field: mapping.get(field, column).strip() for field, column in shape.columns.items()}
    for wanted, default in columns_of_messages(own, first, present).items():
        column = mapping.get(wanted, default).strip()
        if column in present:
            columns[wanted] = column
        elif wanted in mapping or wanted not in shape.optional:
            named = f"data.columns.{wanted}" if wanted in mapping else f"the field '{wanted}' (name it in data.columns)"
            raise UserError(
                f"{first.file}: no column '{shortened(column)}' for {named}; the file has {listed(sorted(present))}"
            )
        elif wanted == "answer" and (near := [name for name in sorted(present) if name.casefold() == column]):
            raise UserError(
                f"{first.file}: no column '{column}' but '{near[0]}'; data.columns={{answer: {near[0]}}} reads it"
            )
    return columns


def convert_rows(
    name: str, columns: Mapping[str, str], raw: RawRow, ignored: AbstractSet[str] = frozenset()
) -> list[Record]:
    """Convert a row of a format, with the rows read with it; a row with several scored completions gives several
    records.

    Args:
        name: name of the format.
        columns: result of `columns_of`, with `split` only if that column is used.
        raw: the row.
        ignored: columns, and keys of messages, that are left out on purpose.

    Raises:
        UserError: a value is not text, a level is not a whole number, a split is unknown, text would be lost (see
            `models.datasets.messages.read_fields`), or a score or label is none (`models.datasets.candidates`).
    """
    shape = FORMATS[name]
    if shape.candidates is not None:
        return _judged_records(shape.candidates, columns, raw, ignored)
    read = read_fields(raw, columns, ignored)
    fields = read.texts
    split = _split(raw, fields.pop(SPLIT_IF_NAMED)) if SPLIT_IF_NAMED in fields else None
    recognised = shape.recognised(fields)
    return [Record(split, _rows(raw, shape.convert(fields), read), recognised, frozenset(read.unread))]


def convert_row(name: str, columns: Mapping[str, str], raw: RawRow, ignored: AbstractSet[str] = frozenset()) -> Record:
    """Return the first record of a row; the arguments and errors are those of `convert_rows`."""
    return convert_rows(name, columns, raw, ignored)[0]


def _judged_records(
    shape: CandidateShape, columns: Mapping[str, str], raw: RawRow, ignored: AbstractSet[str]
) -> list[Record]:
    """Return the records of completions with scores; without a usable one, a record with the problem alone."""
    candidates = shape.candidates(raw, columns)
    kept = {name: columns[name] for name in ("prompt", SPLIT_IF_NAMED, SYSTEM) if name in columns}
    whole = {**kept, "completion": columns[shape.completion]}
    unread = frozenset(unread_keys(raw, columns[shape.completion]) if shape.read == "listed" else ())
    judged = judge(candidates, labels=shape.labels)
    unused = len(candidates) - len({id(used) for row in judged for used in (row.chosen, row.rejected) if used})
    if not judged:
        bare = RawRow(raw.file, raw.number, {**raw.values, whole["completion"]: None})
        read = read_fields(bare, whole, ignored)
        problem: Converted = {"problems": {"prompt": read.texts["prompt"]}}
        return [Record(_split_in(bare, read), _rows(bare, problem, read), True, unread, unused)]
    texts = {id(candidate): read_fields(candidate.raw, whole, ignored) for candidate in candidates}
    records = [_judged_record(row, texts, unread) for row in judged]
    records[0] = replace(records[0], unused=unused)
    return records


def _judged_record(row: CandidateRow, texts: Mapping[int, FieldTexts], unread: frozenset[str]) -> Record:
    raw, read = row.chosen.raw, texts[id(row.chosen)]
    prompt, completion = read.texts["prompt"], read.texts["completion"]
    converted: Converted = {"problems": {"prompt": prompt}}
    if row.demonstrates:
        converted["demonstrations"] = {"prompt": prompt, "completion": completion}
    if row.rejected is not None:
        rejected = texts[id(row.rejected)].texts["completion"]
        converted["preferences"] = {"prompt": prompt, "chosen": completion, "rejected": rejected}
    return Record(_split_in(raw, read), _rows(raw, converted, read), True, unread | read.unread)


def _split_in(raw: RawRow, read: FieldTexts) -> GivenSplit:
    return _split(raw, read.texts[SPLIT_IF_NAMED]) if SPLIT_IF_NAMED in read.texts else None


def _rows(raw: RawRow, converted: Converted, read: FieldTexts) -> dict[Kind, Row]:
    """Return the rows with their levels as numbers, and the system message if there is one."""
    rows: dict[Kind, Row] = {
        kind: {**values, "level": _level(raw, values["level"])} if "level" in values else {**values}
        for kind, values in converted.items()
    }
    if read.system:
        for row in rows.values():
            row[SYSTEM] = read.system if str(row["prompt"]).startswith(read.system) else ""
    return rows


def unrecognised(name: str, file: Path) -> UserError:
    """Return the error for data in which no row has the shape of its format."""
    return UserError(f"{file}: no row is of the format {name}, which is {FORMATS[name].shape}")


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
