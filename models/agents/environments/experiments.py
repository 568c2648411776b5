"""A script that learns from data: the policy edits its lines, the sandbox runs it, and its gain is the reward.

    prompt   task curve
             1: width = 9
             2: power = 1
             3: ...
    turns    1: width = 0.3     score 0.41      a line is replaced, and the script is run
             2: power = 2        score 0.93
             done
    reward   score of the last script that ran, minus that of the first script

After MLGym (paper 37): an agent improves on the baseline of a research task by experiments. The five tasks are in
`models.agents.play.experiment_tasks`; they need no package and run for fractions of a second. The lines may be any
Python. Scripts run only in the sandbox (`models.sandbox`), and a score is computed outside of it, from what the script
predicts for inputs whose targets it does not have. Equal scripts are run once. The problem's answer holds the task, the
seed of its data, the script, and the score from which on the goal is reached.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from models.agents.play.experiment_tasks import TaskName, data_of, score_of
from models.answers.hidden import Hidden, hidden
from models.base.bounds import Count, Share
from models.base.errors import UserError, shortened
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part
from models.sandbox.settings import SandboxSettings
from models.sandbox.shared import shared_sandbox

_EDIT = re.compile(r"(\d{1,3}): ?(.*)", re.DOTALL)


class HiddenExperiment(Hidden):
    """Hidden answer of a problem: the experiment."""

    task: TaskName
    """Task that is scored."""
    seed: Count
    """Seed of its data."""
    script: Annotated[str, Field(min_length=1)]
    """Script at the beginning, which must run."""
    goal: Share
    """Score from which on the goal is reached."""


@part("experiments")
class Experiments(Environment):
    """Edits of a script, which is run and scored after each."""

    needs_answers = True
    edits: Annotated[int, Field(ge=1, le=32)] = 3
    """Largest number of edits; the last one ends the episode."""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    """Resources of one run of a script."""

    def try_out(self) -> None:
        """Raise a UserError if this machine cannot sandbox a program."""
        _ = shared_sandbox(self.sandbox).layers

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem: `{"task": "curve", "seed": 3, "script": "...", "goal": 0.9}`.

        Raises:
            UserError: the answer is none of this environment, or its script gives no score.
        """
        known = hidden(problem, HiddenExperiment, self.name)
        score, why = score_of_script(self.sandbox, known.task, known.seed, known.script)
        if score is None:
            raise UserError(f"problem {problem.id}: its script gives no score ({why}); correct the problem's answer")
        return _Editing(self, known, score)


@lru_cache(maxsize=65536)
def score_of_script(sandbox: SandboxSettings, task: TaskName, seed: int, script: str) -> tuple[float | None, str]:
    """Run a script in the sandbox and score it; the second value is the reason for a missing score, else empty.

    Raises:
        UserError: this machine has too few layers for a sandbox, and that is not accepted.
    """
    data = data_of(task, seed)
    ran = shared_sandbox(sandbox).script(data.preamble + script)
    if ran.late:
        return None, "it took too long"
    if ran.status != 0:
        lines = ran.errors.strip().splitlines()
        return None, shortened(lines[-1] if lines else "it was ended", 60)
    score = score_of(task, data, ran.output)
    return score, "" if score is not None else f"it must print a list of {len(data.test_targets)} numbers"


class _Editing:
    def __init__(self, settings: Experiments, known: HiddenExperiment, baseline: float) -> None:
        self._settings, self._known, self._baseline = settings, known, baseline
        self._lines = known.script.split("\n")
        self._turns, self._score = 0, baseline

    def reset(self, seed: int) -> tuple[str, Info]:
        self._lines = self._known.script.split("\n")
        self._turns, self._score = 0, self._baseline
        return "", self._info()

    def _info(self) -> Info:
        return {"state": "\n".join(self._lines), "solved": self._score >= self._known.goal - 1e-9}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        self._turns += 1
        if turn.strip() == "done":
            return "", self._score - self._baseline, True, False, self._info()
        answer = self._edit(turn.strip())
        over = self._turns == self._settings.edits
        return answer, (self._score - self._baseline) * over, over, False, self._info()

    def _edit(self, turn: str) -> str:
        """Carry out an edit and run the script; an edit after which it gives no score is taken back."""
        edit = _EDIT.fullmatch(turn)
        if edit is None or not 1 <= int(edit[1]) <= len(self._lines):
            return "error: number of a line, colon, new line"
        changed = [*self._lines]
        changed[int(edit[1]) - 1] = edit[2]
        known = self._known
        score, why = score_of_script(self._settings.sandbox, known.task, known.seed, "\n".join(changed))
        if score is None:
            return f"error: {why}"
        self._lines, self._score = changed, score
        return f"score {score:.2f}"

    def close(self) -> None:
        return None
