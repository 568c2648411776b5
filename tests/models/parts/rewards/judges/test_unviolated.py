"""A reward that is withheld if a judge reports a violation: by hand, without judges, and for NaN verdicts."""

import pytest
import torch
from torch import Tensor

from models.method.problem import Problem
from models.parts.rewards.judges.unviolated import Unviolated
from models.parts.rewards.rules.exact_answer import ExactAnswer
from models.parts.rewards.shaping.form_and_length import FormAndLength
from models.recipes.load import load_recipe
from models.training.score import score
from tests.support.malformed_texts import malformed
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

ROLLOUTS = scored([0.0] * 4, [2, 2]).rollouts
COMPONENTS = {
    "wins": torch.tensor([0.9, 0.4, 0.95, 0.6]),
    "rule": torch.tensor([1.0, 1.0, 0.0, 1.0]),
    "model": torch.tensor([0.5, 0.8, 0.9, 0.49]),
}


def values(part: Unviolated) -> list[float]:
    made: Tensor = part.blend(make_resources(), ROLLOUTS, COMPONENTS)
    return made.tolist()


def test_by_hand() -> None:
    both = {"rule": 1.0, "model": 0.5}
    assert values(Unviolated(of="wins", judges=both)) == pytest.approx([0.9, 0.4, 0.0, 0.0])
    assert values(Unviolated(of="wins", judges=both, violated=-1.0)) == pytest.approx([0.9, 0.4, -1.0, -1.0])
    assert values(Unviolated(of="wins", judges={"model": 0.5})) == pytest.approx([0.9, 0.4, 0.95, 0.0])


def test_without_a_judge_nothing_is_withheld() -> None:
    assert values(Unviolated(of="wins")) == COMPONENTS["wins"].tolist()


def test_no_reward_however_high_makes_up_for_a_violation() -> None:
    part = Unviolated(of="wins", judges={"rule": 1.0})
    high = {**COMPONENTS, "wins": torch.tensor([0.01, 0.02, 1e9, 0.03])}
    worth = part.blend(make_resources(), ROLLOUTS, high)
    assert int(worth.argmin()) == 2 and float(worth[2]) == 0.0


def test_a_verdict_that_is_no_number_is_a_violation() -> None:
    unjudged = {**COMPONENTS, "rule": torch.tensor([torch.nan, 1.0, 1.0, 1.0])}
    part = Unviolated(of="wins", judges={"rule": 1.0})
    assert part.blend(make_resources(), ROLLOUTS, unjudged).tolist() == pytest.approx([0.0, 0.4, 0.95, 0.6])


def test_whatever_is_written_has_a_value_and_what_states_no_right_answer_is_withheld() -> None:
    part = Unviolated(of="form_and_length", judges={"exact_answer": 1.0})
    made = score(
        make_resources(), [ExactAnswer(weight=0.0), FormAndLength(weight=0.0), part], malformed(Problem("p", "", "7"))
    )
    right = made.components["exact_answer"] == 1.0
    assert torch.isfinite(made.rewards).all() and not made.rewards[~right].any()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("", "names none"),
        (", of: exact_answer, judges: {form: 1}", "labelled 'form'"),
        (", of: form", "labelled 'form'"),
    ],
)
def test_a_recipe_without_its_reward_or_a_judge_is_refused(settings: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        load_recipe("arithmetic", [f"rewards=[{{name: exact_answer}}, {{name: unviolated{settings}}}]"])
