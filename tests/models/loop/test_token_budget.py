"""A token budget that is too small is refused before anything is generated."""

import pytest

from models.errors import UserError
from models.loop.loop import require_room
from models.loop.rollout import Problem


def test_a_budget_that_the_longest_row_does_not_fit_names_its_setting_and_what_it_needs():
    problems = [Problem("a", "", tokens=(3,) * 5), Problem("b", "", tokens=(3,) * 30)]
    require_room(problems, 12, 42, 1)
    with pytest.raises(UserError, match=r"schedule\.token_budget is 41, .* make it at least 42") as caught:
        require_room(problems, 12, 41, 1)
    assert "\n" not in str(caught.value)


def test_all_completions_that_are_compared_must_fit():
    problems = [Problem("a", "", tokens=(3,) * 30)]
    require_room(problems, 12, 54, 2)
    with pytest.raises(UserError, match=r"the 2 completions that are compared stand in one row; make it at least 54"):
        require_room(problems, 12, 53, 2)
