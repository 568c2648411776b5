"""The strategy takes the candidate with the highest step value. Turns of one token allow an enumeration."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.agents.strategies.best_of_steps import BestOfSteps
from models.agents.strategy import Strategic
from models.base.errors import UserError
from models.engines.engine import EngineSettings, Sampling, TokenSampling, requests_of
from models.learner.packing import Sequences
from models.policies.build import load_causal_model
from models.policies.folder import save_model_folder
from tests.support.device_here import placed
from tests.support.tiny_episodes import ENDING, Listening
from tests.support.tiny_loops import PROBLEMS, TOKENIZER, save_start
from tests.support.tiny_models import plain_log_probs, tiny_policy

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
