"""Statements about a table, parsed and executed on it: each is entailed, false, or cannot be read.

The first column names the rows, the entities. A statement is one sentence in any letter case; COLUMN is the name of a
column with numbers, and N a number:

    lookup        red has 3 points | the points of red are 3
    comparison    red has more points than blue | red has 2 fewer points than blue
    superlative   red has the most points | red has the second fewest points
    count         2 teams have more than 3 points | all teams have at least 1 points | no team has fewer than 1 points
    only          only red has more than 3 points
    aggregate     the total points are 12 | the average points are 4 | the difference of points is 5

`teams` is the name of the first column, in singular or plural; `rows` and `entities` are read too. Every kind except
`lookup` needs an inference over several cells. A superlative that several rows share is entailed for none of them.
Numbers are compared exactly, an average also if it is rounded to the decimals that are given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Self

from pydantic import model_validator

from models.answers.hidden import Hidden

Kind = Literal["lookup", "comparison", "superlative", "count", "only", "aggregate"]
LONGEST = 4000
"""Maximum length of a text, characters; no statement of a longer one is read."""

_NUMBER = r"-?\d{1,12}(?:\.\d{1,6})?"
_BOUND = r"(?P<bound>more than|fewer than|less than|at least|at most|exactly)"
_RANKS = ("", "second ", "third ", "fourth ", "fifth ")
_WORDS = {"one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
          "nine": "9", "ten": "10"}  # fmt: skip
_SENTENCE = re.compile(r"\.(?!\d)|[;\n!?]")


class FactTable(Hidden):
    """A table: names of its columns, and rows whose first cell names them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.columns) < 2 or not self.rows:
            raise ValueError("a table needs two columns and a row")
        if odd := next((row for row in self.rows if len(row) != len(self.columns)), None):
            raise ValueError(f"row {odd[0] if odd else ''} has {len(odd)} cells for {len(self.columns)} columns")
        names = [plain(str(row[0])) for row in self.rows]
        if len(set(names)) < len(names) or "" in names:
            raise ValueError("the first cells of the rows are not different names")
        if len({plain(name) for name in self.columns}) < len(self.columns):
            raise ValueError("two columns have the same name")
        return self

    def numbers(self) -> dict[str, dict[str, Fraction]]:
        """Return the numeric columns: name -> row's name -> number; a column with any other cell is left out."""
        columns: dict[str, dict[str, Fraction]] = {}
        for place, name in enumerate(self.columns[1:], 1):
            cells = [row[place] for row in self.rows]
            if all(re.fullmatch(_NUMBER, str(cell)) for cell in cells):
                names = [plain(str(row[0])) for row in self.rows]
                columns[plain(name)] = {row: Fraction(str(cell)) for row, cell in zip(names, cells, strict=True)}
        return columns


class TableTruth(Hidden):
    """A problem's answer that is a table."""

    table: FactTable


@dataclass(frozen=True)
class Statement:
    """A sentence of a text, its kind and its truth."""

    text: str
    kind: Kind | None
    """None if it cannot be read."""
    entailed: bool


def statements(text: str, table: FactTable) -> list[Statement]:
    """Return the statements of a text in their order, executed on a table; empty if the text is too long."""
    if len(text) > LONGEST:
        return []
    reader = _Reader(table)
    sentences = [plain(sentence) for sentence in _SENTENCE.split(text)]
    return [reader.read(sentence) for sentence in sentences if sentence]


def plain(text: str) -> str:
    """Return a text in lower case, with single spaces and without outer punctuation; numbers in figures."""
    words = " ".join(text.casefold().split()).strip(" .,:'\"`*#").split(" ")
    return " ".join(_WORDS.get(word, word) for word in words)


_Execute = Callable[[re.Match[str]], bool]


class _Reader:
    """The patterns of statements about one table."""

    def __init__(self, table: FactTable) -> None:
        self._numbers = table.numbers()
        names = sorted((plain(str(row[0])) for row in table.rows), key=len, reverse=True)
        column = "|".join(re.escape(name) for name in sorted(self._numbers, key=len, reverse=True)) or r"(?!)"
        entity, thing = "|".join(map(re.escape, names)), re.escape(plain(table.columns[0]))
        things, who = rf"(?:{thing}(?:e?s)?|rows?|entit(?:y|ies))", rf"(?:the )?(?P<who>{entity})"
        col = rf"(?P<col>{column})"
        # "one" is read as 1, so "the one" cannot occur in a name of a rank.
        rank = "|".join(name.strip() for name in _RANKS[1:])
        most = r"(?P<most>most|highest|largest|fewest|least|lowest|smallest)"
        patterns: list[tuple[Kind, str, _Execute]] = [
            ("lookup", rf"{who} (?:has|have) (?P<n>{_NUMBER}) {col}", self._cell),
            ("lookup", rf"the {col} of {who} (?:is|are) (?P<n>{_NUMBER})", self._cell),
            (
                "comparison",
                rf"{who} (?:has|have) (?:(?P<n>{_NUMBER}) )?(?P<way>more|fewer|less|higher|lower) {col} than "
                rf"(?:the )?(?P<other>{entity})",
                self._compared,
            ),
            ("superlative", rf"{who} (?:has|have) the (?:(?P<rank>{rank}) )?{most} {col}", self._ranked),
            (
                "count",
                rf"(?P<n>\d{{1,4}}|all|every|no|none) (?:of the )?{things} (?:has|have) {_BOUND} (?P<than>{_NUMBER}) "
                rf"{col}",
                self._counted,
            ),
            ("only", rf"only {who} (?:has|have) {_BOUND} (?P<than>{_NUMBER}) {col}", self._alone),
            (
                "aggregate",
                rf"the (?P<how>total|sum of|average|mean|difference of|range of)(?: the)? {col} (?:is|are) "
                rf"(?P<n>{_NUMBER})",
                self._aggregated,
            ),
        ]
        self._patterns = [(kind, re.compile(pattern), execute) for kind, pattern, execute in patterns]

    def read(self, sentence: str) -> Statement:
        for kind, pattern, execute in self._patterns:
            match = pattern.fullmatch(sentence)
            if match is not None:
                return Statement(sentence, kind, execute(match))
        return Statement(sentence, None, False)

    def _cell(self, match: re.Match[str]) -> bool:
        return self._numbers[match["col"]][match["who"]] == Fraction(match["n"])

    def _compared(self, match: re.Match[str]) -> bool:
        column = self._numbers[match["col"]]
        lead = column[match["who"]] - column[match["other"]]
        lead = lead if match["way"] in ("more", "higher") else -lead
        return lead > 0 and (match["n"] is None or lead == Fraction(match["n"]))

    def _ranked(self, match: re.Match[str]) -> bool:
        column = self._numbers[match["col"]]
        falling = match["most"] in ("most", "highest", "largest")
        own = column[match["who"]]
        before = sum(value > own if falling else value < own for value in column.values())
        alike = sum(value == own for value in column.values())
        return alike == 1 and before == _RANKS.index(f"{match['rank']} " if match["rank"] else "")

    def _counted(self, match: re.Match[str]) -> bool:
        true = sum(self._holds(match, value) for value in self._numbers[match["col"]].values())
        wanted = {"all": len(self._numbers[match["col"]]), "no": 0, "none": 0}
        wanted["every"] = wanted["all"]
        return true == wanted[match["n"]] if match["n"] in wanted else true == int(match["n"])

    def _alone(self, match: re.Match[str]) -> bool:
        return [name for name, value in self._numbers[match["col"]].items() if self._holds(match, value)] == [
            match["who"]
        ]

    def _holds(self, match: re.Match[str], value: Fraction) -> bool:
        than, bound = Fraction(match["than"]), match["bound"]
        if bound == "exactly":
            return value == than
        if bound in ("more than", "at least"):
            return value > than or (bound == "at least" and value == than)
        return value < than or (bound == "at most" and value == than)

    def _aggregated(self, match: re.Match[str]) -> bool:
        values, how = list(self._numbers[match["col"]].values()), match["how"]
        if how in ("difference of", "range of"):
            return max(values) - min(values) == Fraction(match["n"])
        total = sum(values, Fraction(0))
        if how in ("total", "sum of"):
            return total == Fraction(match["n"])
        mean, decimals = total / len(values), len(match["n"].partition(".")[2])
        return (
            abs(mean - Fraction(match["n"])) <= Fraction(1, 2 * 10**decimals)
            if decimals
            else mean == Fraction(match["n"])
        )


def entailed_statements(table: FactTable) -> Iterator[str]:
    """Yield entailed statements of a table, of every kind that it allows except lookups."""
    for column, cells in table.numbers().items():
        values, thing = list(cells.values()), plain(table.columns[0])
        for name, value in cells.items():
            for other, less in cells.items():
                if value > less:
                    yield f"{name} has more {column} than {other}"
                    yield f"{other} has {_text(value - less)} fewer {column} than {name}"
        ordered: Sequence[str] = sorted(cells, key=lambda name: -cells[name])
        for rank, name in zip(_RANKS, ordered, strict=False):
            if values.count(cells[name]) == 1:
                yield f"{name} has the {rank}most {column}"
        for than in sorted(set(values)):
            above = sum(value > than for value in values)
            yield f"{above} {thing}s have more than {_text(than)} {column}"
        if values.count(max(values)) == 1 and len(values) > 1:
            yield f"only {ordered[0]} has more than {_text(sorted(values)[-2])} {column}"
        yield f"the total {column} are {_text(sum(values, Fraction(0)))}"


def _text(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):g}"
