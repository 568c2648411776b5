"""Generator of the built-in data set `arithmetic` from its settings and a seed: problems, demonstrations, preferences.

The distinct problems of a level are drawn once and then divided into validation and train. The gate's problems are
drawn separately, from the problems that a hash of their text reserves for the gate. Therefore no two splits share a
prompt, and another `gate_seed` makes a gate split that nothing was ever trained on, and leaves the other splits
unchanged. Demonstrations cycle through the problems of their split, with a new draw of the flaw each time; preferences
draw the flaw first and then a problem of the split in which it can occur, so that their shares are those of the
settings.

    python -m models.datasets.make_arithmetic params.yaml data/raw/arithmetic

writes one Parquet file for each kind, with the split of every row in a column; `models.datasets.prepare` reads them.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path
from random import Random
from typing import Annotated, Any, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, model_validator

from models.base.atomic_write import replace_folder
from models.base.errors import UserError
from models.datasets.arithmetic import FLAWS, OPERATIONS, SOUND, ArithmeticProblem, Flaw, Operation, flawed, work
from models.datasets.params import checked, read_section, run_stage
from models.datasets.schema import COLUMNS, Kind, Row, Split, arrow_schema, write_rows

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]
Range = tuple[int, int]

GATE_PART = 0.4
"""Fraction of all problems that is reserved for the gate."""

TRIES = 100
"""Draws for each requested problem before a level counts as exhausted."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ProblemCounts(_Section):
    """Number of problems of each split: of level 1, of level 2, and so on."""

    train: tuple[Count, ...]
    validation: tuple[Count, ...]
    gate: tuple[Count, ...]

    def of(self, split: Split, level: int) -> int:
        """Return the number of problems of a level in the split."""
        counts: tuple[int, ...] = getattr(self, split)
        return counts[level - 1] if level <= len(counts) else 0

    @property
    def levels(self) -> range:
        """All levels up to the highest one of any split."""
        return range(1, 1 + max(len(self.train), len(self.validation), len(self.gate)))


class RowCounts(_Section):
    """Number of rows of each split; the gate has only problems."""

    train: Count = 0
    validation: Count = 0

    def of(self, split: Split) -> int:
        """Return the number of rows of the split."""
        count: int = 0 if split == "gate" else getattr(self, split)
        return count


class DemonstrationFlaws(_Section):
    """Shares of flawed demonstrations. The three are tried in this order, and the first that hits is used."""

    sign_lost: Share
    """Share of the demonstrations in which a result is below zero."""
    operand_skipped: Share
    """Share of the other demonstrations that have two operations or more."""
    slip: Share
    """Share of the rest."""


class PreferenceFlaws(_Section):
    """Share of each kind of flaw among the rejected solutions; the three add up to one."""

    sign_lost: Share
    operand_skipped: Share
    slip: Share

    @model_validator(mode="after")
    def _whole(self) -> Self:
        total = self.sign_lost + self.operand_skipped + self.slip
        if abs(total - 1.0) > 1e-9:
            raise ValueError(f"the shares add up to {total:g}, not 1")
        return self


class Flaws(_Section):
    """The flaws of demonstrations and of rejected solutions."""

    demonstrations: DemonstrationFlaws
    preferences: PreferenceFlaws


class ArithmeticSettings(_Section):
    """Settings of the data set: the section `arithmetic` of params.yaml."""

    seed: int
    gate_seed: int = 0
    """Seed of the gate's problems only."""
    start: Range
    """Smallest and largest start value."""
    operand: Range
    """Smallest and largest number that is added or subtracted."""
    value: Range
    """Smallest and largest result, in sound and in flawed workings."""
    negative_share: Share | None
    """Share of the problems of a level with a result below zero, as far as the level has them; null: left to chance."""
    problems: ProblemCounts
    demonstrations: RowCounts
    preferences: RowCounts
    flaws: Flaws

    @model_validator(mode="after")
    def _ranges_ascend(self) -> Self:
        for name in ("start", "operand", "value"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name}: {low} is larger than {high}")
        return self


def draw_problem(random: Random, level: int, settings: ArithmeticSettings) -> ArithmeticProblem:
    """Draw a problem of that level, with add, take away and double equally likely; results are not checked."""
    operations = []
    for _ in range(level):
        name = random.choice(OPERATIONS)
        operand = random.randint(*settings.operand)
        operations.append(Operation("double", 2) if name == "double" else Operation(name, operand))
    return ArithmeticProblem(random.randint(*settings.start), tuple(operations))


def is_of_gate(problem: ArithmeticProblem) -> bool:
    """Return whether the problem is reserved for the gate; this depends on its text alone and not on the seeds."""
    digest = hashlib.sha256(problem.prompt.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < GATE_PART


def draw_level(level: int, count: int, settings: ArithmeticSettings, of_gate: bool = False) -> list[ArithmeticProblem]:
    """Draw `count` distinct problems of a level with all results in range, in random order, of the gate or the others.

    Raises:
        UserError: the level does not have that many.
    """
    random = Random(f"{settings.seed}/{f'gate/{settings.gate_seed}' if of_gate else 'problems'}/{level}")
    share = settings.negative_share
    below, others = round(count * (share or 0.0)), count - round(count * (share or 0.0))
    negatives = 0
    below_zero: dict[ArithmeticProblem, bool] = {}  # whether a result is below zero, in the order of the draws
    for _ in range(count * TRIES):
        problem = draw_problem(random, level, settings)
        working = work(problem)
        if problem not in below_zero and is_of_gate(problem) == of_gate and working.within(*settings.value):
            below_zero[problem] = min(working.values) < 0
            negatives += below_zero[problem]
            positives = len(below_zero) - negatives
            if len(below_zero) >= count and (share is None or (negatives >= below and positives >= others)):
                break
    if share is None:
        problems = list(below_zero)[:count]
    else:
        negative = [problem for problem, is_below in below_zero.items() if is_below]
        positive = [problem for problem, is_below in below_zero.items() if not is_below]
        taken = min(len(negative), max(below, count - len(positive)))  # if one side has too few, the other adds
        problems = negative[:taken] + positive[: count - taken]
    if len(problems) < count:
        raise UserError(
            f"arithmetic.problems: {count} {'gate ' if of_gate else ''}problems of level {level} are requested, but the"
            f" ranges of start, operand and value give no more than {len(problems)}"
        )
    random.shuffle(problems)
    return problems


def draw_problems(settings: ArithmeticSettings) -> dict[Split, list[ArithmeticProblem]]:
    """Draw the problems of every split; no problem is in two splits."""
    splits: dict[Split, list[ArithmeticProblem]] = {"gate": [], "validation": [], "train": []}
    for level in settings.problems.levels:
        validation, train = (settings.problems.of(split, level) for split in ("validation", "train"))
        pool = draw_level(level, validation + train, settings)
        splits["validation"] += pool[:validation]
        splits["train"] += pool[validation:]
        splits["gate"] += draw_level(level, settings.problems.of("gate", level), settings, of_gate=True)
    for split, problems in splits.items():
        Random(f"{settings.seed}/order/{split}").shuffle(problems)
    return splits


def draw_flaw(random: Random, problem: ArithmeticProblem, shares: DemonstrationFlaws, value: Range) -> tuple[str, str]:
    """Draw a demonstration of the problem: its kind of flaw (or `none`) and the working as text."""
    for flaw in ("sign_lost", "operand_skipped", "slip"):
        workings = flawed(problem, flaw, *value)
        if workings and random.random() < getattr(shares, flaw):
            return flaw, random.choice(workings).text
    return SOUND, work(problem).text


def demonstrations(
    problems: list[ArithmeticProblem], count: int, split: Split, settings: ArithmeticSettings
) -> list[Row]:
    """Draw `count` demonstrations of the problems in turn; `answer` is the problem's, whatever the working states."""
    random = Random(f"{settings.seed}/demonstrations/{split}")
    rows: list[Row] = []
    for index in range(count):
        problem = problems[index % len(problems)]
        flaw, text = draw_flaw(random, problem, settings.flaws.demonstrations, settings.value)
        answer = str(work(problem).answer)
        rows.append(
            {"prompt": problem.prompt, "completion": text, "answer": answer, "level": problem.level, "flaw": flaw}
        )
    return rows


def preferences(problems: list[ArithmeticProblem], count: int, split: Split, settings: ArithmeticSettings) -> list[Row]:
    """Draw `count` pairs of a sound and a flawed solution, all distinct.

    Raises:
        UserError: the problems of the split do not have that many different flawed solutions.
    """
    random = Random(f"{settings.seed}/preferences/{split}")
    weights = [getattr(settings.flaws.preferences, flaw) for flaw in FLAWS]
    pairs: dict[Flaw, list[tuple[ArithmeticProblem, str]]] = {flaw: [] for flaw in FLAWS}
    for flaw, problem in ((flaw, problem) for flaw in FLAWS for problem in problems):
        workings = flawed(problem, flaw, *settings.value)
        # Use a few workings of each problem, not all: a slip has many, and every problem should be used.
        pairs[flaw] += [(problem, working.text) for working in random.sample(workings, min(len(workings), 4))]
    for flaw in FLAWS:
        random.shuffle(pairs[flaw])
    rows: list[Row] = []
    for flaw in random.choices(FLAWS, weights, k=count):
        if not pairs[flaw]:
            raise UserError(
                f"arithmetic.preferences.{split}: the {len(problems)} problems of the split have too few solutions"
                f" with the flaw {flaw} for {count} pairs"
            )
        problem, rejected = pairs[flaw].pop()
        chosen = work(problem).text
        rows.append(
            {"prompt": problem.prompt, "chosen": chosen, "rejected": rejected, "level": problem.level, "flaw": flaw}
        )
    return rows


def make(settings: ArithmeticSettings) -> dict[Kind, dict[Split, list[Row]]]:
    """Make the whole data set: rows of every kind and split, without ids. The same settings give the same rows."""
    problems = draw_problems(settings)
    made: dict[Kind, dict[Split, list[Row]]] = {"problems": {}, "demonstrations": {}, "preferences": {}}
    for split, of_split in problems.items():
        made["problems"][split] = [
            {"prompt": problem.prompt, "answer": str(work(problem).answer), "level": problem.level}
            for problem in of_split
        ]
        for kind, count in (("demonstrations", settings.demonstrations), ("preferences", settings.preferences)):
            if count.of(split) and not of_split:
                raise UserError(f"arithmetic.{kind}.{split}: {count.of(split)} rows, but the split has no problems")
        made["demonstrations"][split] = demonstrations(of_split, settings.demonstrations.of(split), split, settings)
        made["preferences"][split] = preferences(of_split, settings.preferences.of(split), split, settings)
    return made


def write(settings: ArithmeticSettings, folder: Path) -> None:
    """Write `problems.parquet`, `demonstrations.parquet`, `preferences.parquet`, each with a column `split`."""
    made = make(settings)
    with replace_folder(folder) as partial:
        for kind, splits in made.items():
            fields = [field for field in arrow_schema(kind) if field.name in _RAW[kind]]
            rows: list[dict[str, Any]] = [{"split": split, **row} for split, part in splits.items() for row in part]
            write_rows(partial / f"{kind}.parquet", rows, pa.schema([pa.field("split", pa.string(), False), *fields]))


_RAW: dict[Kind, tuple[str, ...]] = {
    kind: tuple(column for column in columns if column not in ("id", "prompt_id", "tests", "entry_point"))
    for kind, columns in COLUMNS.items()
}


def main(arguments: list[str] | None = None) -> int:
    """Run the stage `make` of dvc.yaml."""
    parser = argparse.ArgumentParser(prog="python -m models.datasets.make_arithmetic", description=__doc__)
    parser.add_argument("params", type=Path, help="YAML file with the section `arithmetic`")
    parser.add_argument("folder", type=Path, help="folder to write")
    given = parser.parse_args(arguments)
    settings = checked(ArithmeticSettings, read_section(given.params, "arithmetic"), f"{given.params}: arithmetic")
    write(settings, given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(run_stage(main))
