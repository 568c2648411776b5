"""Rules of conduct and severity: circuits compared with truth tables, and the costs of turns by hand."""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
import torch

from models.agents.play.circuits import holds, names_of
from models.base.errors import UserError
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode
from models.parts.rewards.episodes.policy_rules import PolicyRules, Rule
from models.parts.rewards.episodes.severity import Severity
from tests.support.tiny_resources import make_resources

FORMULAS: dict[str, Callable[[bool, bool, bool], bool]] = {
    "a": lambda a, b, c: a,
    "not a": lambda a, b, c: not a,
    "a and b or c": lambda a, b, c: (a and b) or c,
    "a and (b or not c)": lambda a, b, c: a and (b or not c),
    "not (a or b) and c": lambda a, b, c: not (a or b) and c,
    "a or b or c": lambda a, b, c: a or b or c,
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_circuit_is_its_truth_table(formula: str) -> None:
    for values in product([False, True], repeat=3):
        assert holds(formula, dict(zip("abc", values, strict=True))) is FORMULAS[formula](*values)
    assert names_of(formula) <= set("abc")


@pytest.mark.parametrize(
    "text", ["a == b", "a(b)", "a if b else c", "1", "a.b", "a[0]", "", "a b", "lambda: a", "(a := b)"]
)
def test_nothing_but_names_with_and_or_not_is_a_formula(text: str) -> None:
    with pytest.raises(ValueError, match="is not a formula"):
        names_of(text)


def said(*pairs: tuple[str, str]) -> Rollout:
    """Return an episode whose turns have two tokens each, with one token of the environment between turns."""
    turns = tuple(Turn(3 * at, 3 * at + 2, text=turn, response=heard) for at, (turn, heard) in enumerate(pairs))
    length = 3 * len(turns) - 1
    text = "\n".join(turn for turn, _ in pairs)
    return Rollout(Problem("p", "hat"), 0, tuple(range(length)), None, text, True, episode=RolloutEpisode(turns=turns))


PROPOSITIONS = {"looked": "^look ", "dear": r"\$2\d"}
RULES = (
    Rule(when="^(add|buy)", requires="looked", weight=0.5),
    Rule(when="^buy", requires="looked and not dear", weight=2.0),
)


def costs(*rollouts: Rollout, **settings: Any) -> list[list[float]]:
    reward = PolicyRules(rules=RULES, propositions=PROPOSITIONS, **settings)
    return [row.tolist() for row in reward.tokens(make_resources(), rollouts)]


BLIND = said(("search hat", "1 $9"), ("add 1", "cart 1"), ("buy", ""))
SEEN = said(("look 1", "hat $9"), ("add 1", "cart 1"), ("buy", ""))
DEAR = said(("look 1", "hat $25"), ("add 1", "cart 1"), ("buy", ""))


def test_a_turn_costs_what_the_rules_weigh_that_it_violates_at_its_last_token() -> None:
    assert costs(BLIND, SEEN, DEAR) == [
        [0, 0, 0, 0, -0.5, 0, 0, -2.5], [0.0] * 8, [0, 0, 0, 0, 0, 0, 0, -2.0],
    ]  # fmt: skip


def test_what_is_said_in_the_turn_itself_does_not_count_as_before_it() -> None:
    assert costs(said(("buy\nlook 1", "")))[0] == [0, -2.5]


def test_the_cost_is_what_the_log_odds_of_acting_lose_over_all_worlds_of_the_rules() -> None:
    """A world gives truth values to the action and the propositions; it weighs exp(weights of the rules that hold)."""

    def weight(acts: bool, looked: bool, dear: bool) -> float:
        kept = [not acts or looked, not acts or (looked and not dear)]
        return math.exp(sum(w for w, rule in zip((0.5, 2.0), kept, strict=True) if rule))

    for looked, dear in product([False, True], repeat=2):
        heard = "hat $25" if dear else "hat $9"
        turns = [("look 1" if looked else "search hat", heard), ("buy", "")]
        odds = math.log(weight(True, looked, dear) / weight(False, looked, dear))
        assert sum(costs(said(*turns))[0]) == pytest.approx(odds, abs=1e-6)


def test_rules_that_constrain_cost_nothing_while_few_enough_episodes_violate_them() -> None:
    assert costs(SEEN, SEEN, SEEN, BLIND, most=0.25) == [[0.0] * 8] * 4
    assert costs(SEEN, SEEN, BLIND, most=0.25)[2] == [0, 0, 0, 0, -0.5, 0, 0, -2.5]
    assert costs(SEEN, BLIND, most=0.0)[1] == costs(BLIND)[0]


@pytest.mark.parametrize(
    "settings, why",
    [
        ({"rules": (Rule(when="^buy", requires="seen"),)}, "rules.0.requires: no proposition is called 'seen'"),
        ({"rules": (Rule(when="(", requires="looked"),)}, "rules.0.when: '\\(' is not a regular expression"),
        ({"rules": (Rule(when="a", requires="looked +"),)}, "rules.0.requires: 'looked \\+' is not a formula"),
        ({"propositions": {"looked": "["}}, "propositions.looked: '\\[' is not a regular expression"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_by_its_key(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=f"rewards.policy_rules.{why}"):
        PolicyRules(**{"propositions": PROPOSITIONS, **settings})


def test_severity_is_the_largest_weight_that_is_met_in_each_turn() -> None:
    table = {"talk": -0.5, "threat": 2.0, "strike": 10.0}
    rollout = said(("talk", ""), ("threaten to strike", ""), ("wait", ""), ("Threat", ""))
    [row] = Severity(table=table).tokens(make_resources(), [rollout])
    assert row.tolist() == [0, 0.5, 0, 0, -10.0, 0, 0, 0.0, 0, 0, -2.0]
    plain: Sequence[Rollout] = [Rollout(Problem("p", ""), 0, (1, 2), None, "a strike", True)]
    assert torch.equal(Severity(table=table)(make_resources(), plain), torch.tensor([-10.0]))
    with pytest.raises(UserError, match=r"rewards.severity.table: '\(' is not a regular expression"):
        Severity(table={"(": 1.0})
