"""The axis of norms: principal components of an independent reference, a planted direction, and scores of texts."""

import pytest
import torch

from models.base.errors import UserError
from models.method.rollout import Rollout
from models.parts.rewards.models.norm_direction import NormDirection, axis_of
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_resources import make_resources


def states(seed: int, count: int, width: int = 6) -> torch.Tensor:
    return torch.randn(count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_axis_is_the_first_eigenvector_of_the_covariance() -> None:
    do, avoid = states(0, 7), states(1, 5)
    axis = axis_of(do, avoid)
    values, vectors = torch.linalg.eigh(torch.cov(torch.cat([do, avoid]).T))
    assert abs(float(axis.direction @ vectors[:, -1])) == pytest.approx(1.0, abs=1e-10)
    assert axis.explained == pytest.approx(float(values[-1] / values.sum()), abs=1e-10)
    assert float((do @ axis.direction).mean()) > float((avoid @ axis.direction).mean())


def test_a_planted_direction_is_recovered_and_orders_every_pair() -> None:
    planted = torch.nn.functional.normalize(states(2, 1)[0], dim=0)
    do, avoid = (sign * 5 * planted + 0.3 * states(seed, 10) for sign, seed in ((1, 3), (-1, 4)))
    axis = axis_of(do, avoid)
    assert float(axis.direction @ planted) > 0.99 and axis.separated == 1.0 and axis.explained > 0.9
    scores = axis.score(torch.cat([do, avoid]))
    assert float(scores.abs().max()) == pytest.approx(1.0) and (scores[:10] > 0).all() and (scores[10:] < 0).all()


def test_the_score_by_hand() -> None:
    do, avoid = torch.tensor([[3.0, 1.0], [1.0, 1.0]]).double(), torch.tensor([[-1.0, 1.0], [-3.0, 1.0]]).double()
    axis = axis_of(do, avoid)  # centre (0, 1), direction (1, 0), largest projection 3
    assert axis.score(torch.tensor([[1.5, 9.0], [-3.0, 0.0]]).double()).tolist() == pytest.approx([0.5, -1.0])
    assert axis.explained == pytest.approx(1.0) and axis.separated == 1.0


def test_neither_a_shift_nor_the_order_of_the_phrases_changes_a_score() -> None:
    do, avoid, texts = states(5, 6), states(6, 6), states(7, 4)
    first = axis_of(do, avoid).score(texts)
    shift = states(8, 1)
    assert torch.allclose(axis_of(do.flip(0) + shift, avoid.flip(0) + shift).score(texts + shift), first, atol=1e-10)
    assert torch.allclose(axis_of(avoid, do).score(texts), -first, atol=1e-10)


def test_equal_states_have_no_direction() -> None:
    same = torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(UserError, match="the states of all phrases are equal"):
        axis_of(same, same)


DO, AVOID = ("4 + 4", "4 + 5", "5 + 4"), ("7 ; 7", "7 ; 8", "8 ; 7")


def part(**settings: object) -> NormDirection:
    return NormDirection(do=DO, avoid=AVOID, questions=("{phrase} =", "= {phrase}"), **settings)  # type: ignore[arg-type]


def written(*texts: str) -> list[Rollout]:
    return [Rollout(PROBLEMS[0], 0, (4,), None, text, True) for text in texts]


def test_texts_like_the_phrases_to_do_score_higher_in_any_row() -> None:
    resources = make_resources()
    resources.learner.reference = resources.learner.policy
    made = part().reasoned(resources, written("5 + 5", "8 ; 8"))
    assert made.watched["separated"] == 1.0 and float(made.values[0]) > float(made.values[1])
    small = make_resources(token_budget=16)
    small.learner.reference = resources.learner.policy
    assert torch.allclose(part()(small, written("8 ; 8")), made.values[1:], atol=1e-5)


def test_phrases_of_unknown_words_and_a_missing_reference_are_refused_by_one_line() -> None:
    resources = make_resources()
    with pytest.raises(UserError, match="reward norm_direction needs a reference"):
        part()(resources, written("4"))
    resources.learner.reference = resources.learner.policy
    unknown = NormDirection(do=("help",), avoid=("steal",), questions=("{phrase}",))
    with pytest.raises(UserError, match=r"reward norm_direction: the states of all phrases are equal.*tokenizer knows"):
        unknown(resources, written("4"))


@pytest.mark.parametrize(
    "settings, line",
    [
        ({"do": ("a",), "avoid": ("a",)}, "'a' is in do and in avoid"),
        ({"do": ("a",), "avoid": ("b",), "questions": ("no place",)}, r"'no place' has no \{phrase\}"),
        ({"do": ("a",), "avoid": ("b",), "questions": ()}, r"rewards\.norm_direction\.questions: none"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], line: str) -> None:
    with pytest.raises(UserError, match=line):
        NormDirection(**settings)  # type: ignore[arg-type]


def test_a_recipe_with_phrases_on_one_side_alone_is_refused() -> None:
    with pytest.raises(UserError, match=r"rewards\.norm_direction: do and avoid need at least one phrase each"):
        load_recipe(find_recipe("moral_direction"), ["rewards=[{name: norm_direction, do: [help people]}]"])
