"""Post-train language models from Python: the functions that the command line calls, with typed results.

    import rewardflow

    outcome = rewardflow.run("arithmetic", schedule={"rounds": 20})
    outcome.decision                    # "promoted", "kept", ...
    outcome.to_frame()                  # the steps as a table
    policy = rewardflow.load("champion")
    policy.generate(["2 + 3 ="])

Every function works in the current folder, a project or a clone, as the command line does: recipes/ and data/ are
there, and the state folder is `.rewardflow` or REWARDFLOW_HOME. Errors of the user are `UserError`, one line each.
Nothing heavy is imported before a function is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rewardflow.own_packages import require_own_packages

require_own_packages()

if TYPE_CHECKING:
    from models.base.errors import UserError
    from rewardflow.judging import judge
    from rewardflow.policy import Policy, load
    from rewardflow.recipe import Recipe
    from rewardflow.registry import Version, promote, rollback, versions
    from rewardflow.results import (
        ComparisonOutcome,
        Difference,
        Guard,
        JudgedMetric,
        JudgeOutcome,
        RunOutcome,
        Step,
        StrategyOutcome,
    )
    from rewardflow.training import compare, evaluate, run

_PLACES = {
    "UserError": "models.base.errors",
    **dict.fromkeys(("Policy", "load"), "rewardflow.policy"),
    "Recipe": "rewardflow.recipe",
    **dict.fromkeys(("Version", "promote", "rollback", "versions"), "rewardflow.registry"),
    "judge": "rewardflow.judging",
    **dict.fromkeys(
        (
            "ComparisonOutcome",
            "Difference",
            "Guard",
            "JudgeOutcome",
            "JudgedMetric",
            "RunOutcome",
            "Step",
            "StrategyOutcome",
        ),
        "rewardflow.results",
    ),
    **dict.fromkeys(("compare", "evaluate", "run"), "rewardflow.training"),
}
"""Public name -> module that has it."""

__all__ = [
    "ComparisonOutcome",
    "Difference",
    "Guard",
    "JudgeOutcome",
    "JudgedMetric",
    "Policy",
    "Recipe",
    "RunOutcome",
    "Step",
    "StrategyOutcome",
    "UserError",
    "Version",
    "compare",
    "evaluate",
    "judge",
    "load",
    "promote",
    "rollback",
    "run",
    "versions",
]


def __getattr__(name: str) -> Any:
    """Import the module of a public name when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'rewardflow' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
