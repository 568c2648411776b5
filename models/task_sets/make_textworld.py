"""Make games of TextWorld from seeds, and problems about them, with demonstrations that reach the goal or wander.

    python -m models.task_sets.make_textworld data/textworld/params.yaml data/textworld/rows data/textworld/games

reads the section `textworld`. The same settings give the same bytes, games included; DVC pins them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from models.agents.play.textworld_games import TextWorldGame, TextWorldSize, compile_to, listed, make
from models.base.atomic_write import replace_folder
from models.datasets.params import checked, read_section, run_stage
from models.datasets.schema import SOUND
from models.task_sets.drawing import Count, Share, Task, TaskSettings, draw_tasks
from models.task_sets.make_tasks import write

SECTION = "textworld"
_SEEDS = 100_000


class TextWorldSettings(TaskSettings):
    """The section `textworld`."""

    states_answer: ClassVar[bool] = False
    rooms: Count
    objects: Count
    quest: tuple[Count, Count]
    """Minimum and maximum number of commands that a goal takes."""
    wandered: Share
    """Share of the demonstrations whose commands are drawn from those that the game accepts, until the goal is reached
    by chance or there are as many commands as the longest goal takes."""
    longest: Count
    """Maximum length of an answer that is read, characters, as in the environment."""

    @cached_property
    def _folder(self) -> Path:
        """Temporary folder in which games are compiled; removed when the process ends."""
        self.__dict__["_kept"] = kept = tempfile.TemporaryDirectory(prefix="textworld-")
        return Path(kept.name)

    def draw(self, random: Random) -> Task:
        """Draw a game by its seed; it is not compiled yet."""
        seed, quest = random.randrange(_SEEDS), random.randint(*self.quest)
        game, _ = make(seed, self._world(quest))
        return Task(" ".join(str(game.objective).split()), f"game-{seed:05d}-{quest}", quest, ())

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return an episode that wanders, or the shortest one that reaches the goal."""
        if random.random() < self.wandered:
            return "wandered", self._played(task, self.quest[1], lambda number, commands: random.choice(commands))
        solution = self._made(task.answer)[0].metadata["walkthrough"]
        return SOUND, self._played(task, len(solution), lambda number, commands: str(solution[number]))

    def compiled(self, name: str) -> Path:
        """Return the file of the compiled game that a task's answer names; compile the game the first time."""
        file = self._folder / f"{name}.z8"
        if not file.is_file():
            compile_to(file, *self._made(name))
        return file

    def _made(self, name: str) -> tuple[Any, Any]:
        _, seed, quest = name.split("-")
        return make(int(seed), self._world(int(quest)))

    def _world(self, quest: int) -> TextWorldSize:
        return TextWorldSize(rooms=self.rooms, objects=self.objects, quest=quest)

    def _played(self, task: Task, most: int, choose: Callable[[int, tuple[str, ...]], str]) -> tuple[str, ...]:
        """Play a game and return its commands and answers, by turns; the last turn is a command."""
        game = TextWorldGame(self.compiled(task.answer), self.longest)
        turns: list[str] = []
        try:
            game.begin()
            for number in range(most):
                command = choose(number, game.commands)
                heard, _ = game.do(command)
                turns += [command, listed(heard, game.commands)]
                if game.over:
                    break
        finally:
            game.close()
        return tuple(turns[:-1])


def main(arguments: list[str] | None = None) -> int:
    """Run the stage `games` of data/textworld/dvc.yaml."""
    parser = argparse.ArgumentParser(prog="python -m models.task_sets.make_textworld", description=__doc__)
    parser.add_argument("params", type=Path, help=f"YAML file with a section {SECTION}")
    parser.add_argument("rows", type=Path, help="folder of the problems and demonstrations to write")
    parser.add_argument("games", type=Path, help="folder of the compiled games to write")
    given = parser.parse_args(arguments)
    settings = checked(TextWorldSettings, read_section(given.params, SECTION), f"{given.params}: {SECTION}")
    names = [task.answer for split in settings.problems for task in draw_tasks(settings, split)]
    with replace_folder(given.games) as partial:
        for name in names:  # one after the other: all threads share the package's parser
            for suffix in (".z8", ".json"):
                shutil.copyfile(settings.compiled(name).with_suffix(suffix), partial / f"{name}{suffix}")
    write(settings, given.rows)
    return 0


if __name__ == "__main__":
    sys.exit(run_stage(main))
