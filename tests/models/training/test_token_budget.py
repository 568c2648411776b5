"""A token budget that is too small is refused before anything is generated."""

from dataclasses import replace

import pytest

from models.base.errors import UserError
from models.method.objective import Objective
from models.method.problem import KnownAnswer, Problem
from models.method.rollout_source import Rollouts
from models.parts.objective.dpo import Dpo
from models.parts.objective.grpo import Grpo
from models.parts.objective.tpo import Tpo
from models.parts.rollouts.beside_data import BesideData
from models.parts.rollouts.beside_reference import BesideReference
from models.parts.rollouts.conditioned import Conditioned
from models.parts.rollouts.dataset import Dataset
from models.parts.rollouts.explained import Explained
from models.parts.rollouts.hindsight import Hindsight
from models.parts.rollouts.mixture import SampleBesideMixture
from models.parts.rollouts.prefix import PrefixSampling
from models.parts.rollouts.sample import Sample
from models.parts.rollouts.sample_and_greedy import SampleAndGreedy
from models.training.row_lengths import require_room
from tests.support.tiny_loops import PROBLEMS
from tests.support.tiny_resources import CODEC, make_resources

LONG = Problem("a", "", tokens=(3,) * 30)


def test_a_budget_that_the_longest_row_does_not_fit_names_its_setting_and_what_it_needs() -> None:
    problems, source = [Problem("a", "", tokens=(3,) * 5), replace(LONG, id="b")], Sample(max_tokens=12)
    require_room(problems, source, Grpo(), CODEC, 42)
    with pytest.raises(UserError, match=r"schedule\.token_budget is 41, .* make it at least 42") as caught:
        require_room(problems, source, Grpo(), CODEC, 41)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "objective", "together"),
    [
        (Sample(group_size=8, max_tokens=12), Dpo(), 2),
        (Sample(group_size=8, max_tokens=12), Tpo(), 8),
        (SampleAndGreedy(group_size=8, max_tokens=12), Tpo(), 9),
        (SampleBesideMixture(group_size=8, opponents=3, max_tokens=12), Tpo(), 11),
        (BesideReference(group_size=8, references=2, max_tokens=12), Tpo(), 10),
        (BesideData(group_size=8, known=2, max_tokens=12), Tpo(), 10),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_all_completions_that_are_compared_must_fit(source: Rollouts, objective: Objective, together: int) -> None:
    require_room([LONG], source, objective, CODEC, 30 + 12 * together)
    with pytest.raises(UserError, match=rf"the {together} completions that are compared are in one row"):
        require_room([LONG], source, objective, CODEC, 29 + 12 * together)


def test_of_demonstrations_as_many_are_compared_as_the_data_hold_of_one_prompt() -> None:
    known = tuple(KnownAnswer("demonstration", (4, 1), "") for _ in range(5))
    source = Dataset(reads="demonstrations", max_tokens=12)
    require_room([LONG, replace(LONG, known=known)], source, Tpo(), CODEC, 90)
    with pytest.raises(UserError, match=r"the 5 completions that are compared .* at least 90"):
        require_room([LONG, replace(LONG, known=known)], source, Tpo(), CODEC, 89)


CHOSEN, REJECTED = KnownAnswer("chosen", (5, 6, 1), "2 3"), KnownAnswer("rejected", (7, 8, 9, 10, 1), "4 5 6 7", "slip")
ASKED = replace(PROBLEMS[0], answer="12", known=(CHOSEN, REJECTED))  # the prompt is `1 + 2 =`


@pytest.mark.parametrize(
    ("source", "extra"),
    [
        (PrefixSampling(max_tokens=6), 0),
        (Hindsight(max_tokens=5, bad="; ;", good="= ="), 6),  # 2 + 3 - 1 and 2 + 5 tokens, of which max_tokens covers 5
        (Explained(max_tokens=6, hint="{prompt} #### {answer} ; ;"), 4),
        (Conditioned(max_tokens=6, reads="preferences", flawed_prompt="; ; {prompt}"), 2),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_what_a_source_adds_to_a_row_must_fit_too_and_is_named(source: Rollouts, extra: int) -> None:
    assert source.extra_tokens(CODEC, [ASKED]) == [extra]
    needed = len(ASKED.tokens) + source.max_tokens + extra
    require_room([ASKED], source, Grpo(), CODEC, needed)
    metrics = f"rollouts {source.name} adds {extra}" if extra else "rollouts.max_tokens is 6; make"
    with pytest.raises(UserError, match=f"{metrics}.* at least {needed}"):
        require_room([ASKED], source, Grpo(), CODEC, needed - 1)


def test_where_nothing_is_said_nothing_is_added() -> None:
    sound = replace(ASKED, known=(CHOSEN,), answer="")
    assert Conditioned(reads="preferences").extra_tokens(CODEC, [sound]) == [0]
    assert Explained().extra_tokens(CODEC, [sound]) == [0]


def test_no_row_of_a_chain_is_longer_than_was_said() -> None:
    source = Hindsight(max_tokens=5, bad="; ;", good="= =")
    for number in range(4):  # enough rounds for both orders
        (chain,) = source(make_resources(seed=0), [ASKED], number)
        assert len(chain.completion) <= source.max_tokens + source.extra_tokens(CODEC, [ASKED])[0]
        assert len(chain.completion) == 11
