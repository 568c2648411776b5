"""The best of n drafts has the distribution of the maximum of n draws, computed by enumeration."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from models.agents.strategies.best_of_n import BestOfN
from models.agents.strategies.plain import Plain
from models.agents.strategies.vote import Vote
from models.agents.strategy import Strategic, Strategy
from models.agents.turn_scorer import NO_SCORER, ScorerSettings
from models.base.errors import UserError
from models.base.seeds import call_seed
from models.engines.engine import TokenSampling
from tests.support.tiny_strategies import BYTES, DRAWN, GREEDY, Scripted, ask_of, turns_of

CHANCES = {"a": 0.5, "b": 0.3, "c": 0.2}
"""Probability of each answer of the scripted policy."""
REWARD = {"a": 0.1, "b": 0.9, "c": 0.4}
REWARDED = ScorerSettings(name="reward_model", path="set by the test")


class Table:
    """A scorer whose values are a table of texts."""

    def __init__(self, values: dict[str, float] = REWARD) -> None:
        self.table, self.read, self.scored = values, 0, 0

    def __call__(self, prompts: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]) -> list[float]:
        self.scored += len(turns)
        self.read += sum(map(len, turns))
        return [self.table[text] for text in BYTES.text(turns)]


def drawn_text(text: str, seed: int) -> str:
    point, total = (seed * 2654435761 % 2**32) / 2**32, 0.0
    for answer, chance in CHANCES.items():
        total += chance
        if point < total:
            return answer
    return answer


def made_by(
    strategy: Strategy,
    scorer: Table,
    seeds: range,
    drawing: TokenSampling = DRAWN,
    say: object = drawn_text,
    max_tokens: int = 60,
) -> list[str]:
    strategic = Strategic(Scripted(say), BYTES, strategy, 4096, scorer)  # type: ignore[arg-type]
    requests = [ask_of("?", seed, max_tokens) for seed in seeds]
    return BYTES.text([turn.tokens for turn in strategic.complete(requests, drawing)])


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("drafts", [1, 2, 4])
def test_with_the_true_reward_the_turn_is_the_maximum_of_n_draws_in_distribution(drafts: int) -> None:
    """P(best = y) = P(all draws at most r(y)) - P(all draws below r(y)); chi-square with 2 degrees of freedom."""
    count = 4000
    turns = Counter(made_by(BestOfN(drafts=drafts, scorer=REWARDED), Table(), range(11, 11 + count)))
    chi_square, total = 0.0, 0.0
    for answer in sorted(CHANCES, key=REWARD.__getitem__):
        below, total = total, total + CHANCES[answer]
        expected = count * (total**drafts - below**drafts)
        chi_square += (turns[answer] - expected) ** 2 / expected
    assert chi_square < 13.8, "it is larger with probability 0.001"


@pytest.mark.parametrize("drawing", [DRAWN, GREEDY], ids=["drawn", "greedy"])
@pytest.mark.parametrize("strategy", [BestOfN(drafts=1), Vote(drafts=1, scorer=REWARDED)], ids=["best", "vote"])
def test_of_a_single_draft_the_turn_is_the_policys_own_and_no_scorer_is_read(
    strategy: Strategy, drawing: TokenSampling
) -> None:
    heard: list[TokenSampling] = []

    class Heard(Scripted):
        def complete(self, requests, drawing):  # type: ignore[no-untyped-def]
            heard.append(drawing)
            return super().complete(requests, drawing)

    requests = [ask_of("?", seed) for seed in range(9)]
    turns, policy = turns_of(strategy, Heard(drawn_text), requests, drawing)
    assert turns == turns_of(Plain(), Scripted(drawn_text), requests, drawing)[0]
    assert heard == [drawing] and policy.spent.calls == 9 and policy.spent.scored == 0


def test_several_greedy_drafts_are_drawn_at_the_temperature_of_the_strategy() -> None:
    assert len(set(made_by(BestOfN(drafts=2, scorer=REWARDED), Table(), range(40), GREEDY))) > 1


def test_equal_drafts_are_scored_once_and_the_scorers_tokens_are_counted() -> None:
    scorer = Table()
    strategic = Strategic(Scripted(lambda text, seed: "a"), BYTES, BestOfN(drafts=8, scorer=REWARDED), 4096, scorer)
    strategic.complete([ask_of("?", 3)], DRAWN)
    assert scorer.scored == 1 and strategic.policy.spent.scored == 2 and strategic.policy.spent.calls == 8


def test_a_cut_draft_is_taken_only_if_all_were_cut() -> None:
    said = {call_seed(5, 0): "b" * 9, call_seed(5, 1): "a"}
    values = {"b" * 9: 1.0, "b" * 4: 1.0, "a": 0.0}
    strategy = BestOfN(drafts=2, scorer=REWARDED)
    assert made_by(strategy, Table(values), range(5, 6), say=lambda text, seed: said[seed], max_tokens=4) == ["a"]
    assert made_by(strategy, Table(values), range(5, 6), say=lambda text, seed: "b" * 9, max_tokens=4) == ["bbbb"]


@pytest.mark.rotating(of=6)
def test_a_vote_with_equal_weights_is_the_vote_without_a_scorer() -> None:
    """Three weights on each scale, over 400 turns with six drafts each."""
    plain = made_by(Vote(drafts=6), Table(), range(400))
    for value in (0.25, 0.7, 3.0):
        for name in ("reward_model", "process_model"):
            strategy = Vote(drafts=6, scorer=ScorerSettings(name=name))  # type: ignore[arg-type]
            assert made_by(strategy, Table(dict.fromkeys(CHANCES, value)), range(400)) == plain


@pytest.mark.parametrize(
    ("name", "values", "turn"),
    [
        ("process_model", {"#### 1": 0.2, "#### 2": 0.3, "so #### 2": 0.3, "#### 3": 0.7}, "#### 3"),
        ("process_model", {"#### 1": 0.2, "#### 2": 0.4, "so #### 2": 0.4, "#### 3": 0.7}, "so #### 2"),
        ("process_model", {"#### 1": -5.0, "#### 2": 0.0, "so #### 2": 0.0, "#### 3": 0.0}, "#### 1"),
        ("reward_model", {"#### 1": 0.0, "#### 2": 0.0, "so #### 2": 0.0, "#### 3": 0.6}, "so #### 2"),
        ("reward_model", {"#### 1": 0.0, "#### 2": 0.0, "so #### 2": 0.0, "#### 3": 0.8}, "#### 3"),
    ],
)
def test_the_answer_with_the_largest_sum_of_weights_wins(name: str, values: dict[str, float], turn: str) -> None:
    """Weights of log-odds are exp(value): 2 votes of weight 1 against exp 0.6 = 1.82 and exp 0.8 = 2.23."""
    texts = ["#### 1", "so #### 2", "#### 2", "#### 3"]
    said = {call_seed(5, number): text for number, text in enumerate(texts)}
    strategy = Vote(drafts=4, scorer=ScorerSettings(name=name))  # type: ignore[arg-type]
    assert made_by(strategy, Table(values), range(5, 6), say=lambda text, seed: said[seed]) == [turn]


def test_with_a_budget_the_number_of_drafts_changes_and_nothing_else() -> None:
    for strategy in (BestOfN(temperature=0.7), Vote(temperature=0.7, scorer=REWARDED)):
        assert strategy.at_budget(16) == replace(strategy, drafts=16)


def test_without_a_scorer_or_without_its_model_it_is_refused_in_a_line() -> None:
    with pytest.raises(UserError, match="best_of_n needs a scorer; the strategy vote needs none"):
        BestOfN(scorer=NO_SCORER)
    with pytest.raises(UserError, match=r"strategy\.scorer: the model of reward_model is not open"):
        turns_of(BestOfN(scorer=REWARDED), Scripted(drawn_text), [ask_of("?")], DRAWN)
