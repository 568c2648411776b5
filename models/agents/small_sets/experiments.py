"""Scripts with poor settings, whose goal is most of the gain of the best settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from random import Random

from models.agents.environments.experiments import Experiments, score_of_script
from models.agents.play.experiment_tasks import SCRIPTS, TaskName
from models.agents.small_sets.rows import SmallSet, SmallTask
from models.sandbox.settings import SandboxSettings

NEAR = 0.9
"""Share of the best gain from which on the goal is reached."""


@lru_cache(maxsize=1024)
def scores(task: TaskName, seed: int) -> dict[tuple[str, ...], float]:
    """Return the score of all listed settings of a task; settings without a score have zero."""
    script = SCRIPTS[task]
    sandbox = SandboxSettings()
    return {
        values: score_of_script(sandbox, task, seed, script.source(values))[0] or 0.0
        for values in product(*script.settings.values())
    }


@dataclass(frozen=True)
class ExperimentsSet(SmallSet):
    """Tasks with data of a few seeds, each from several first settings."""

    data_seeds: int = 20
    """Number of data sets of a task."""
    sound: float = 0.15
    """Share of the demonstrations that set the best values."""

    def draw(self, random: Random) -> SmallTask:
        """Draw a task, its data, and settings that are far from the best."""
        while True:
            task = random.choice(list(SCRIPTS))
            seed = random.randrange(self.data_seeds)
            by_values = scores(task, seed)
            best, values = max(by_values.values()), random.choice(list(by_values))
            first = by_values[values]
            if 0 < first < best - 0.03:
                break
        script = SCRIPTS[task].source(values)
        goal = round(first + NEAR * (best - first), 4)
        lines = "\n".join(f"{number}: {line}" for number, line in enumerate(script.split("\n"), 1))
        answer = json.dumps({"task": task, "seed": seed, "script": script, "goal": goal})
        return SmallTask(f"task {task} {seed}\n{lines}", answer, list(SCRIPTS).index(task) + 1)

    def script(self, random: Random, task: SmallTask) -> tuple[str, Sequence[str]]:
        """Draw edits of both settings: the best values, or random ones."""
        known = json.loads(task.answer)
        script, by_values = SCRIPTS[known["task"]], scores(known["task"], known["seed"])
        sound = random.random() < self.sound
        values = max(by_values, key=lambda each: by_values[each]) if sound else random.choice(list(by_values))
        names = list(script.settings)
        edits = [f"{n + 1}: {names[n]} = {values[n]}" for n in random.sample(range(len(names)), len(names))]
        if not sound and random.random() < 0.5:
            edits = edits[:1]
        return "none" if sound else "aimless", [*edits, "done"]


SET = ExperimentsSet(Experiments, problems={"train": 150, "validation": 25, "gate": 50})
