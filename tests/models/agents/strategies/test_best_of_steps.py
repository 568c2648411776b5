"""The strategy takes the candidate with the highest step value. Turns of one token allow an enumeration."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.agents.strategies.best_of_steps import BestOfSteps
from models.agents.strategy import Strategic
from models.agents.turn_scorer import ScorerSettings
from models.base.errors import UserError
from models.engines.engine import EngineSettings, Sampling, TokenSampling, requests_of
from models.learner.packing import Sequences
from models.policies.build import load_causal_model
from models.policies.folder import save_model_folder
from tests.support.device_here import placed
from tests.support.tiny_episodes import ENDING, Listening
from tests.support.tiny_loops import PROBLEMS, TOKENIZER, save_start
from tests.support.tiny_models import plain_log_probs, tiny_policy
from tests.support.tiny_strategies import BYTES, Scripted, ask_of

ENDS = sorted(ENDING.ends)
"""The turns of a single token that end. No other turns are possible."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Save an agent, a value model and a reference model, and return their folders."""
    made = {"agent": save_start(tmp_path_factory.mktemp("agent"))}
    for name, seed in (("values", 11), ("reference", 12)):
        made[name] = tmp_path_factory.mktemp(name)
        save_model_folder(tiny_policy(torch.float32, seed=seed, spread=3.0), TOKENIZER, made[name])
    return made


def log_probs(folder: Path, prompt: tuple[int, ...]) -> dict[int, float]:
    """Return the log-prob of every turn of a single token after `prompt`, by the definition."""
    model = placed(load_causal_model(folder, torch.float32))
    with torch.no_grad():
        rows = plain_log_probs(model, Sequences([prompt] * len(ENDS), [[end] for end in ENDS]))
    return {end: float(row) for end, row in zip(ENDS, rows, strict=True)}


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("named", ["", "reference"])
def test_the_turn_is_the_action_of_highest_value_of_all_that_are_drawn(folders: dict[str, Path], named: str) -> None:
    engine = Listening(folders["agent"], EngineSettings(precision="float32"), end=ENDING.ends)
    strategy = BestOfSteps(values=str(folders["values"]), reference=str(folders[named]) if named else "", candidates=64)
    requests = requests_of([problem.tokens for problem in PROBLEMS], Sampling(max_tokens=1), 5)
    strategic = Strategic(engine, ENDING, strategy, 64)
    made = strategic.complete(requests, TokenSampling(temperature=0.0, log_probs=False))
    values_decide = 0
    for ask, turn in zip(requests, made, strict=True):
        prompt = tuple(ask.prompt)
        drawn = {made.tokens[0] for asked, made in engine.asked if asked.prompt == ask.prompt and made.finished}
        assert turn.finished and len(drawn) > 1
        values, reference = (log_probs(folders[name], prompt) for name in ("values", named or "agent"))
        worth = {end: values[end] - reference[end] for end in ENDS}
        assert turn.tokens == (max(drawn, key=worth.__getitem__),)
        agent = log_probs(folders["agent"], prompt)
        values_decide += turn.tokens != (max(agent, key=agent.__getitem__),)
    assert values_decide, "it would be no different from what is likeliest"
    assert strategic.policy.spent.calls <= strategy.most_calls * len(requests)


def test_with_the_agents_own_values_the_first_candidate_that_ends_is_taken(folders: dict[str, Path]) -> None:
    """In this case all values are zero."""
    engine = Listening(folders["agent"], EngineSettings(precision="float32"), end=ENDING.ends)
    strategy = BestOfSteps(values=str(folders["agent"]), reference=str(folders["agent"]), candidates=8)
    (ask,) = requests_of([PROBLEMS[0].tokens], Sampling(max_tokens=3), 5)
    (turn,) = Strategic(engine, ENDING, strategy, 64).complete([ask], TokenSampling(log_probs=False))
    assert turn.tokens == next(made.tokens for _, made in engine.asked if made.finished)


def test_a_model_that_is_missing_or_of_other_tokens_is_refused_by_a_line(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    engine = Listening(folders["agent"], EngineSettings(precision="float32"), end=ENDING.ends)
    requests = requests_of([PROBLEMS[0].tokens], Sampling(max_tokens=1), 5)
    strategy = BestOfSteps()
    with pytest.raises(UserError, match=r"strategy.values: name the model folder"):
        Strategic(engine, ENDING, strategy, 64).complete(requests, TokenSampling(log_probs=False))
    with pytest.raises(UserError, match="nowhere"):
        named = replace(strategy, values=str(tmp_path / "nowhere"))
        Strategic(engine, ENDING, named, 64).complete(requests, TokenSampling(log_probs=False))
    other = tmp_path / "other"
    save_model_folder(tiny_policy(torch.float32, vocabulary=40), TOKENIZER, other)
    with pytest.raises(UserError, match="has 40 tokens, and the policy 24"):
        Strategic(engine, ENDING, replace(strategy, values=str(other)), 64).complete(
            requests, TokenSampling(log_probs=False)
        )


VALUE = {"go": 0.9, "wait": 0.5, "turn": 0.2, "stop": 0.0}
"""True value of each action of a toy."""
POLICIES = [
    {"go": 0.1, "wait": 0.2, "turn": 0.3, "stop": 0.4},
    {"go": 0.25, "wait": 0.25, "turn": 0.25, "stop": 0.25},
    {"go": 0.05, "wait": 0.05, "turn": 0.1, "stop": 0.8},
    {"go": 0.4, "wait": 0.1, "turn": 0.1, "stop": 0.4},
    {"go": 0.02, "wait": 0.9, "turn": 0.04, "stop": 0.04},
]
"""Probabilities of the actions under five frozen policies."""
CRITIC = ScorerSettings(name="critic", path="set by the test")


class Critic:
    """A critic that knows the value of each action."""

    read = 0

    def __call__(self, prompts: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]) -> list[float]:
        return [VALUE[text] for text in BYTES.text(turns)]


def turns_by_critic(policy: dict[str, float], strategy: BestOfSteps, count: int) -> list[str]:
    def say(text: str, seed: int) -> str:
        return random.Random(seed).choices(list(policy), weights=list(policy.values()))[0]

    strategic = Strategic(Scripted(say), BYTES, strategy, 4096, Critic())
    made = strategic.complete([ask_of("?", seed) for seed in range(count)], TokenSampling(log_probs=False))
    return BYTES.text([turn.tokens for turn in made])


@pytest.mark.parametrize("policy", POLICIES, ids=range(5))
def test_one_critic_raises_the_value_of_five_frozen_policies_as_enumerated(policy: dict[str, float]) -> None:
    """E[max of K values] = sum over actions of value * (F(value)^K - F(below)^K), F the distribution of values."""
    count, candidates = 600, 4
    turns = turns_by_critic(policy, BestOfSteps(scorer=CRITIC, candidates=candidates), count)
    total = expected = square = 0.0
    for action in sorted(VALUE, key=VALUE.__getitem__):
        below, total = total, total + policy[action]
        share = total**candidates - below**candidates
        expected += VALUE[action] * share
        square += VALUE[action] ** 2 * share
    alone = sum(VALUE[action] * chance for action, chance in policy.items())
    mean = sum(VALUE[turn] for turn in turns) / count
    assert abs(mean - expected) < 4 * ((square - expected**2) / count) ** 0.5
    assert mean > alone + 0.05


@pytest.mark.rotating(of=6)
def test_steering_draws_the_candidates_in_proportion_to_the_exponential_of_their_values() -> None:
    """With very many candidates of a uniform policy, the shares are those of a softmax over the actions."""
    strategy = BestOfSteps(scorer=CRITIC, candidates=64, steering=0.3)
    count = 200
    turns = turns_by_critic(POLICIES[1], strategy, count)
    weights = {action: math.exp(value / 0.3) for action, value in VALUE.items()}
    for action, weight in weights.items():
        assert abs(turns.count(action) / count - weight / sum(weights.values())) < 0.12


def test_with_a_critic_no_log_ratio_is_read() -> None:
    assert BestOfSteps(scorer=CRITIC).most_calls == 5 and BestOfSteps(scorer=ScorerSettings()).most_calls == 10
    with pytest.raises(UserError, match="values and reference belong to the log-ratio"):
        BestOfSteps(scorer=CRITIC, values="x")
