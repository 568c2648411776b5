"""Makes games of TextWorld from seeds, and the problems about them, with demonstrations that reach the goal or idle.

    python -m models.datasets.make_textworld data/textworld/params.yaml data/textworld/rows data/textworld/games

reads the section `textworld`. The same settings give the same bytes, games included; DVC pins them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from random import Random
from typing import ClassVar

from models.atomic_write import replace_folder
from models.datasets.make_tasks import write
from models.datasets.params import checked, read_section, run_stage
from models.datasets.task_sets.drawing import SOUND, Count, Share, Task, TaskSettings, draw_tasks
from models.episodes.textworld_games import Game, compile_to, make

SECTION = "textworld"
_IDLE = ("look", "inventory")
_SEEDS = 100_000


class TextWorldSettings(TaskSettings):
    """The section `textworld`."""

    states_answer: ClassVar[bool] = False
    rooms: Count
    objects: Count
    quest: Count
    """Commands that the goal takes."""
    idle: Share
    """Share of the demonstrations that look around and reach nothing."""
    longest: Count
    """Characters of an answer, as the environment has them."""

    @cached_property
    def _folder(self) -> Path:
        """Where games are compiled until they are wanted; gone with the process."""
        self.__dict__["_kept"] = kept = tempfile.TemporaryDirectory(prefix="textworld-")
        return Path(kept.name)

    def draw(self, random: Random) -> Task:
        """A game by its seed; not compiled yet."""
        seed = random.randrange(_SEEDS)
        game, _ = make(seed, self.rooms, self.objects, self.quest)
        return Task(" ".join(str(game.objective).split()), f"game-{seed:05d}", self.quest, ())

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """An episode that idles, or the shortest that reaches the goal."""
        idles = random.random() < self.idle
        return ("idle", self._played(task, _IDLE)) if idles else (SOUND, self._played(task, self._solution(task)))

    def compiled(self, name: str) -> Path:
        """The compiled game of a task's answer."""
        file = self._folder / f"{name}.z8"
        if not file.is_file():
            compile_to(file, *make(int(name.removeprefix("game-")), self.rooms, self.objects, self.quest))
        return file

    def _solution(self, task: Task) -> tuple[str, ...]:
        game, _ = make(int(task.answer.removeprefix("game-")), self.rooms, self.objects, self.quest)
        return tuple(game.metadata["walkthrough"])

    def _played(self, task: Task, commands: tuple[str, ...]) -> tuple[str, ...]:
        """Commands and what comes of them, by turns; the first room stands before the first."""
        game = Game(self.compiled(task.answer), self.longest)
        try:
            turns = [game.begin()]
            for command in commands:
                turns += [command, game.do(command)[0]]
        finally:
            game.close()
        return tuple(turns[1:-1])


def main(arguments: list[str] | None = None) -> int:
    """The stage `games` of data/textworld/dvc.yaml."""
    parser = argparse.ArgumentParser(prog="python -m models.datasets.make_textworld", description=__doc__)
    parser.add_argument("params", type=Path, help=f"YAML file with a section {SECTION}")
    parser.add_argument("rows", type=Path, help="folder of the problems and demonstrations to write")
    parser.add_argument("games", type=Path, help="folder of the compiled games to write")
    given = parser.parse_args(arguments)
    settings = checked(TextWorldSettings, read_section(given.params, SECTION), f"{given.params}: {SECTION}")
    with replace_folder(given.games) as partial:
        for split in settings.problems:
            for task in draw_tasks(settings, split):
                for suffix in (".z8", ".json"):
                    shutil.copyfile(
                        settings.compiled(task.answer).with_suffix(suffix), partial / f"{task.answer}{suffix}"
                    )
    write(settings, given.rows)
    return 0


if __name__ == "__main__":
    sys.exit(run_stage(main))
