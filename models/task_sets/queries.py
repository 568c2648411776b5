"""Questions about a small database, answered by a query; some demonstrations hold a wrong query or one that fails.

    name of players with age over 31 ?
        SELECT name FROM players WHERE age > 31
    how many clubs with titles at most 5 ?
        SELECT COUNT ( * ) FROM clubs WHERE titles <= 5
    age of players of clubs in oslo with goals over 9 ?
        SELECT age FROM players JOIN clubs ON players.club = clubs.club WHERE town = 'oslo' AND goals > 9

All questions share one database: the statements that create it are each problem's `tests`, and the query is its answer.
The flaws of demonstrations: `broken`, a query that does not run; `mislinked`, another column; `reversed`, another
comparison.
"""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

TOWNS = "lima oslo riga cairo quito hanoi porto turin".split()
NAMES = "ana ben cleo dan eva finn gina hugo iris jan kai lena milo nora otto pia".split()
NUMBERS = {"players": ("age", "goals", "height"), "clubs": ("founded", "members", "titles")}
"""Names of the columns of numbers, by table."""
WORDS = {"players": ("name", "club"), "clubs": ("club", "town")}
"""Names of the columns of words, by table."""
RANGES = {
    "age": (17, 40), "goals": (0, 30), "height": (160, 200), "founded": (1900, 1930), "members": (10, 60),
    "titles": (0, 12),
}  # fmt: skip
"""Smallest and largest value of a column."""
SIGNS = {"over": ">", "under": "<", "at least": ">=", "at most": "<="}
TOTALS = {"highest": "MAX", "lowest": "MIN", "total": "SUM"}
JOINED = "players JOIN clubs ON players.club = clubs.club"


class QueriesSettings(TaskSettings):
    """The section `queries` of params.yaml."""

    states_answer = False

    players: Annotated[int, Field(ge=8, le=500)]
    """Number of rows of the table `players`; the table `clubs` has one row per club."""
    clubs: Annotated[int, Field(ge=4, le=50)]
    broken: Share
    """Share of the demonstrations that do not run."""
    mislinked: Share
    """Share of the other demonstrations that name another column."""
    reversed: Share
    """Share of the remaining demonstrations that have another comparison."""

    @cached_property
    def database(self) -> str:
        """SQL statements that create the database."""
        random = Random(f"{self.seed}/database")
        lines = []
        for table, count in (("clubs", self.clubs), ("players", self.players)):
            columns = [f"{name} TEXT" for name in WORDS[table]] + [f"{name} INTEGER" for name in NUMBERS[table]]
            lines.append(f"CREATE TABLE {table} ({', '.join(columns)});")
            for number in range(count):
                first = f"c{number}" if table == "clubs" else f"{random.choice(NAMES)}{number}"
                second = random.choice(TOWNS) if table == "clubs" else f"c{random.randrange(self.clubs)}"
                values = [str(random.randint(*RANGES[name])) for name in NUMBERS[table]]
                lines.append(f"INSERT INTO {table} VALUES ('{first}', '{second}', {', '.join(values)});")
        return "\n".join(lines)

    def draw(self, random: Random) -> Task:
        """Draw a question; level 2 is about one value of many rows, level 3 about two tables."""
        table = random.choice(list(NUMBERS))
        compared = random.choice(NUMBERS[table])
        sign, value = random.choice(list(SIGNS)), random.randint(*RANGES[compared])
        asked, where = f"with {compared} {sign} {value}", f"{compared} {SIGNS[sign]} {value}"
        kind = random.randrange(4)
        if kind == 0:
            column = random.choice([*WORDS[table], *NUMBERS[table]])
            return self._task(f"{column} of {table} {asked} ?", f"{column} FROM {table} WHERE {where}", 1)
        if kind == 1:
            return self._task(f"how many {table} {asked} ?", f"COUNT ( * ) FROM {table} WHERE {where}", 2)
        if kind == 2:
            total, column = random.choice(list(TOTALS)), random.choice(NUMBERS[table])
            query = f"{TOTALS[total]} ( {column} ) FROM {table} WHERE {where}"
            return self._task(f"{total} {column} of {table} {asked} ?", query, 2)
        town, column = random.choice(TOWNS), random.choice(["name", *NUMBERS["players"]])
        compared, sign = random.choice(NUMBERS["players"]), random.choice(list(SIGNS))
        value = random.randint(*RANGES[compared])
        query = f"{column} FROM {JOINED} WHERE town = '{town}' AND {compared} {SIGNS[sign]} {value}"
        return self._task(f"{column} of players of clubs in {town} with {compared} {sign} {value} ?", query, 3)

    def _task(self, prompt: str, query: str, level: int) -> Task:
        return Task(prompt, f"SELECT {query}", level, (f"SELECT {query}",), self.database)

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a query without one of its words, one with another column or comparison, or the sound one."""
        words = task.answer.split()
        if random.random() < self.broken:
            words.remove(random.choice(["FROM", "SELECT", "WHERE"]))
            return "broken", (" ".join(words),)
        table = "players" if "players" in words else "clubs"
        columns = [*WORDS[table], *NUMBERS[table]]
        if random.random() < self.mislinked:
            place = random.choice([number for number, word in enumerate(words) if word in columns])
            kind = NUMBERS if words[place] in NUMBERS[table] else WORDS
            words[place] = random.choice([column for column in kind[table] if column != words[place]])
            return "mislinked", (" ".join(words),)
        if random.random() < self.reversed:
            place = next(number for number, word in enumerate(words) if word in SIGNS.values())
            words[place] = random.choice([sign for sign in SIGNS.values() if sign != words[place]])
            return "reversed", (" ".join(words),)
        return SOUND, task.steps


SETTINGS = QueriesSettings
