"""User-defined reward: a Python function in a file that the recipe names.

Two signatures are supported, recognised by the names of the function's parameters. The first is called once for all
completions of a round, like TRL's `reward_funcs`, and returns a number for each:

    def reward(prompts, completions, answers, **others): return [float(a in c) for c, a in zip(completions, answers)]

It may name any of `prompts`, `completions` (texts), `answers`, `ids`, `levels` (of the problems), `completion_ids`
(tokens), `finished` (whether the completion ended by itself) and `groups` (equal for completions of one prompt): lists,
[completions] each. A value of None abstains: that completion has no value, and the others keep theirs. The second is
called for one completion at a time, like verl's `compute_score`, and returns a number or a mapping with a `score`:

    def compute_score(data_source, solution_str, ground_truth, extra_info): ...

The file is trusted like the recipe: it runs in the training process. If a call fails or tries to end the process, only
the values of that call are lost; its changes to the process are undone (`models.base.user_code.contain`). Code that a
model wrote must not run there.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.base.errors import UserError, listed, shortened
from models.base.source_code import SourceCode, code_file, read_source
from models.base.time_limit import within
from models.base.user_code.contain import contained
from models.method.problem import Problem
from models.method.recipe_paths import RecipePath
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout

_LOG = logging.getLogger("rewardflow.rewards")
_PROBLEM = Problem("probe", "What is 1 + 1?", "2", 1, (3, 4))
PROBE = [
    Rollout(_PROBLEM, 0, (5, 1), None, text="1 + 1 = 2 ; #### 2", finished=True),
    Rollout(_PROBLEM, 0, (6,), None, text="", finished=False),
    Rollout(replace(_PROBLEM, id="probe-2", prompt="Say nothing.", answer=""), 1, (5, 1), None, "####", finished=True),
]
"""Completions that a function is tried on before a run starts: an answer, an empty completion that was cut, and a
problem without an answer."""

Columns = Mapping[str, Callable[[Rollout], Any]]
ALL: Columns = {
    "prompts": lambda rollout: rollout.problem.prompt,
    "completions": lambda rollout: rollout.text,
    "answers": lambda rollout: rollout.problem.answer,
    "ids": lambda rollout: rollout.problem.id,
    "levels": lambda rollout: rollout.problem.level,
    "completion_ids": lambda rollout: list(rollout.written_ids),
    "finished": lambda rollout: rollout.finished,
    "groups": lambda rollout: rollout.group,
}
"""Arguments of a function of all completions."""
EACH: Columns = {
    "data_source": lambda rollout: "",
    "solution_str": lambda rollout: rollout.text,
    "ground_truth": lambda rollout: rollout.problem.answer,
    "extra_info": lambda rollout: {
        "id": rollout.problem.id,
        "level": rollout.problem.level,
        "prompt": rollout.problem.prompt,
        "finished": rollout.finished,
    },
}
"""Arguments of a function of one completion."""


@part("python")
class PythonReward(Reward):
    """A function in a Python file of your own."""

    path: RecipePath = ""
    """The file; a relative path is relative to the recipe's folder."""
    function: str = "reward"
    """Name of the function."""
    sha256: str = ""
    """Hash of the file's content, filled in when the recipe is read. If it is given in a recipe, other content is
    refused."""

    def __post_init__(self) -> None:
        super().__post_init__()
        source = read_source(Path(self.path), f"rewards.{self.label}.path") if self.path else None
        if source is not None and self.sha256 not in ("", source.sha256):
            raise UserError(f"rewards.{self.label}: {self.path} has other content than sha256 says: {source.sha256}")
        object.__setattr__(self, "sha256", source.sha256 if source else "")
        object.__setattr__(self, "_source", source)

    @property
    def given(self) -> tuple[SourceCode, ...]:
        """The file as it was when the recipe was read."""
        source: SourceCode | None = vars(self)["_source"]
        return () if source is None else (source,)

    def try_out(self) -> None:
        """Load the file and call the function once, for made-up completions, under the limit of a round.

        Raises:
            UserError: no file is named, the function is missing or has unknown parameters, or it does not return one
                finite number, or None, for each completion.
        """
        where = f"rewards.{self.label}: {self.path}: {self.function}"
        try:
            values = within(self.limits.seconds, lambda: self._values(PROBE))
        except UserError:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise UserError(f"{where} fails for a completion that was made up to try it ({why})") from None
        if not all(value is None or math.isfinite(value) for value in values):
            raise UserError(f"{where} gives a value that is not finite for a completion that was made up to try it")

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Call the function and return its values, [completions].

        A value is NaN if the function returns None, or not a number, for a completion. It is also NaN if a function of
        one completion raises for it.

        Raises:
            UserError: the function is missing or has unknown parameters.
            TypeError, ValueError: it does not return a value for each completion.
        """
        values = self._values(rollouts, one_may_fail=True)
        return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float32)

    def _values(self, rollouts: Sequence[Rollout], *, one_may_fail: bool = False) -> list[float | None]:
        function, columns, wanted = self._function()
        if columns is ALL:
            columns_given = {name: [ALL[name](rollout) for rollout in rollouts] for name in wanted}
            given = contained(code_file(self), lambda: function(**columns_given))
            return [self._read(value, rollout, one_may_fail) for value, rollout in _each(given, rollouts)]
        return [self._value(function, wanted, rollout, one_may_fail) for rollout in rollouts]

    def _value(self, function: Any, wanted: Sequence[str], rollout: Rollout, may_fail: bool) -> float | None:
        try:
            columns_given = {name: EACH[name](rollout) for name in wanted}
            given = contained(code_file(self), lambda: function(**columns_given))
        except Exception as error:
            return self._lost(rollout, error, may_fail)
        return self._read(
            given["score"] if isinstance(given, Mapping) and "score" in given else given, rollout, may_fail
        )

    def _read(self, value: Any, rollout: Rollout, may_fail: bool) -> float | None:
        """Read a value of the function.

        None, by which a function abstains, is kept; NaN replaces an invalid value if `may_fail` is set.
        """
        try:
            return None if value is None else _number(value)
        except Exception as error:
            return self._lost(rollout, error, may_fail)

    def _lost(self, rollout: Rollout, error: Exception, may_fail: bool) -> float:
        if not may_fail:
            raise error
        _LOG.warning("reward %s, problem %s: %s: %s", self.label, rollout.problem.id, type(error).__name__, error)
        return math.nan

    def _function(self) -> tuple[Any, Columns, list[str]]:
        """Return the function, the columns of its signature, and the names of the columns that it takes."""
        if not self.given:
            raise UserError(f"rewards.{self.label}.path: name the file that defines the function {self.function}")
        (source,) = self.given
        where = f"rewards.{self.label}: {self.path}"
        function = vars(source.load()).get(self.function)
        if not callable(function):
            there = [name for name, value in vars(source.load()).items() if inspect.isfunction(value)]
            raise UserError(f"{where}: no function is called {self.function}; there is {listed(there)}")
        if inspect.iscoroutinefunction(function):
            raise UserError(f"{where}: {self.function} is asynchronous; let it run what it awaits itself")
        parameters = inspect.signature(function).parameters.values()
        columns = EACH if any(parameter.name in EACH for parameter in parameters) else ALL
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            wanted = list(columns)
        else:
            wanted = [parameter.name for parameter in parameters if parameter.name in columns]
        for parameter in parameters:
            by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            optional = parameter.default is not parameter.empty or parameter.kind in (
                parameter.VAR_KEYWORD,
                parameter.VAR_POSITIONAL,
            )
            if not optional and not (by_name and parameter.name in columns):
                raise UserError(
                    f"{where}: {self.function} asks for {parameter.name}, which a reward is not given by name; there "
                    f"are {', '.join(columns)}"
                )
        return function, columns, wanted


def _each(given: Any, rollouts: Sequence[Rollout]) -> list[tuple[Any, Rollout]]:
    """Pair the elements of a list, an array or a tensor with the completions."""
    values = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(values, list | tuple):
        raise TypeError(f"it returns a {type(given).__name__}, not a list of numbers")
    if len(values) != len(rollouts):
        raise ValueError(f"it returns {len(values)} values for {len(rollouts)} completions")
    return list(zip(values, rollouts, strict=True))


def _number(value: Any) -> float:
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"it returns {shortened(repr(value))} ({type(value).__name__}) as a value, not a number")
    return float(value)
