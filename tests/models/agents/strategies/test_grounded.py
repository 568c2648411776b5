"""Grounded decoding draws a listed action token by token from the product of the policy and the actions' scores."""

import math
from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from models.agents.strategies.grounded import Grounded, prefix_scores
from models.agents.strategy import Strategic
from models.agents.turn_scorer import ScorerSettings
from models.base.errors import UserError
from models.engines.engine import CompletionRequest, EngineSettings, TokenSampling
from models.engines.transformers_engine import TransformersEngine
from models.learner.packing import Sequences
from tests.support.tiny_loops import PROBLEMS, save_start
from tests.support.tiny_models import contents, plain_log_probs
from tests.support.tiny_resources import CODEC
from tests.support.tiny_strategies import Scripted, ask_of, turns_of

ACTIONS = ("3 + 4", "3 + 5", "7", "3 9")
DRAWN = TokenSampling(log_probs=False)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> TransformersEngine:
    start = save_start(tmp_path_factory.mktemp("policy"))
    return TransformersEngine(start, EngineSettings(precision="float32"), end=CODEC.ends)


def requests(count: int, actions: Sequence[str] = ACTIONS, problem: int = 0) -> list[CompletionRequest]:
    return [CompletionRequest(PROBLEMS[problem].tokens, seed, 12, actions=tuple(actions)) for seed in range(count)]


class ByLength:
    """A scorer whose value of a turn is the share of its length in 6 tokens."""

    read = 0

    def __call__(self, prompts: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]) -> list[float]:
        self.read += sum(map(len, turns))
        return [len(turn) / 6 for turn in turns]


def expected(engine: TransformersEngine, scores: Sequence[float], weight: float) -> dict[str, float]:
    """Return the probability of each action by the definition, token by token."""
    turns = [tuple(ids) for ids in CODEC.completions(ACTIONS)]
    chances = dict(zip(ACTIONS, [1.0] * len(ACTIONS), strict=True))
    for action, turn in zip(ACTIONS, turns, strict=True):
        for at, token in enumerate(turn):
            sharing = [(other, g) for other, g in zip(turns, scores, strict=True) if other[:at] == turn[:at]]
            tokens = sorted({other[at] for other, _ in sharing})
            grounded = {each: sum(g for other, g in sharing if other[at] == each) for each in tokens}
            with torch.no_grad():
                rows = plain_log_probs(
                    engine.model,
                    Sequences([PROBLEMS[0].tokens] * len(tokens), [[*turn[:at], each] for each in tokens]),
                )
            weights = {
                each: math.exp(float(row[-1])) * (grounded[each] / sum(grounded.values())) ** weight
                for each, row in zip(tokens, rows, strict=True)
            }
            chances[action] *= weights[token] / sum(weights.values())
    assert sum(chances.values()) == pytest.approx(1.0)
    return chances


@pytest.mark.parametrize(("scored", "weight"), [(False, 1.0), (True, 1.0), (True, 3.0), (True, 0.0)])
def test_actions_come_up_as_often_as_the_product_of_policy_and_scores_says(
    engine: TransformersEngine, scored: bool, weight: float
) -> None:
    scorer = ScorerSettings(name="critic", path="opened by the test") if scored else ScorerSettings(name="none")
    strategic = Strategic(engine, CODEC, Grounded(scorer=scorer, weight=weight), 64, ByLength() if scored else None)
    count = 600
    made = strategic.complete(requests(count), DRAWN)
    assert all(turn.finished for turn in made)
    seen = Counter(CODEC.text([turn.tokens for turn in made]))
    lengths = [len(ids) for ids in CODEC.completions(ACTIONS)]
    chances = expected(engine, [length / 6 for length in lengths] if scored else [1.0] * len(ACTIONS), weight)
    assert set(seen) <= set(ACTIONS)
    squares = sum((seen[action] - count * chance) ** 2 / (count * chance) for action, chance in chances.items())
    assert squares < 16.3  # chi-square of 3 degrees of freedom, 0.1 %
    assert strategic.policy.spent.calls == count


def test_beginnings_share_the_scores_of_the_actions_that_they_begin() -> None:
    shares = prefix_scores([(5, 6, 1), (5, 7, 1), (8, 1)], [math.log(1.0), math.log(3.0), math.log(4.0)])
    assert {token: math.exp(share) for token, share in shares[()].items()} == pytest.approx({5: 0.5, 8: 0.5})
    assert {token: math.exp(share) for token, share in shares[5,].items()} == pytest.approx({6: 0.25, 7: 0.75})
    assert shares[8,] == {1: 0.0}


def test_an_action_without_a_score_never_occurs_unless_none_has_a_score() -> None:
    shares = prefix_scores([(5, 1), (8, 1)], [-math.inf, -2.0])
    assert shares[()] == {5: -math.inf, 8: 0.0}
    assert prefix_scores([(5, 1), (8, 1)], [-math.inf, -math.inf])[()][5] == pytest.approx(math.log(0.5))


def test_greedy_takes_the_likeliest_next_token_of_an_action(engine: TransformersEngine) -> None:
    greedy = TokenSampling(temperature=0.0, log_probs=False)
    (turn,) = Strategic(engine, CODEC, Grounded(), 64).complete(requests(1), greedy)
    assert CODEC.text([turn.tokens])[0] in ACTIONS
    (only,) = Strategic(engine, CODEC, Grounded(actions=("3 9",)), 64).complete(requests(1, ()), greedy)
    assert CODEC.text([only.tokens]) == ["3 9"]


def test_requests_with_other_actions_are_decoded_together_and_each_keeps_to_its_own(
    engine: TransformersEngine,
) -> None:
    mixed = [*requests(6), *requests(6, ("7", "9 = ;")), *requests(6, ("5",), problem=2)]
    together = Strategic(engine, CODEC, Grounded(), 64).complete(mixed, DRAWN)
    texts = CODEC.text([turn.tokens for turn in together])
    assert set(texts[:6]) <= set(ACTIONS) and set(texts[6:12]) <= {"7", "9 = ;"} and set(texts[12:]) == {"5"}
    apart = [Strategic(engine, CODEC, Grounded(), 64).complete([request], DRAWN)[0] for request in mixed]
    assert contents([turn.tokens for turn in together]) == contents([turn.tokens for turn in apart])


def test_an_action_that_is_longer_than_the_turn_is_cut(engine: TransformersEngine) -> None:
    request = CompletionRequest(PROBLEMS[0].tokens, 0, 2, actions=("3 + 4 + 5",))
    (turn,) = Strategic(engine, CODEC, Grounded(), 64).complete([request], DRAWN)
    assert not turn.finished and turn.tokens == tuple(CODEC.completions(["3 + 4 + 5"])[0][:2])


def test_what_cannot_be_grounded_is_one_line(engine: TransformersEngine) -> None:
    with pytest.raises(UserError, match="the environment lists no actions"):
        Strategic(engine, CODEC, Grounded(), 64).complete(requests(1, ()), DRAWN)
    with pytest.raises(UserError, match=r"lists 4 actions, and strategy.most_actions is 3"):
        Strategic(engine, CODEC, Grounded(most_actions=3), 64).complete(requests(1), DRAWN)
    with pytest.raises(UserError, match="does not decode together with other models"):
        turns_of(Grounded(), Scripted(), [ask_of("go", actions=("left",))])
