"""A check whether this machine can simulate circuits. Tests that need the simulation are skipped if it cannot."""

from functools import cache

import pytest

from models.base.errors import UserError
from models.parts.rewards.code.unit_tests import UnitTests
from models.recipes.schema import Recipe

REASON = "Icarus Verilog, or namespaces to hold it, are missing"


@cache
def simulator_here() -> bool:
    """Return whether the reward for circuits can be computed here."""
    try:
        UnitTests(reads="verilog").try_out()
    except UserError:
        return False
    return True


def skip_without_simulator(recipe: Recipe) -> None:
    """Skip the test if `recipe` needs a simulator that is missing."""
    needs = any(isinstance(reward, UnitTests) and reward.reads == "verilog" for reward in recipe.rewards)
    if needs and not simulator_here():
        pytest.skip(REASON)
