"""Every strategy: calls are bounded and counted, and a turn depends only on its own request."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.agents.strategies.plain import Plain
from models.agents.strategy import CountedPolicy, Strategic, Strategy
from models.engines.engine import CompletionRequest, EngineSettings, Generated, Sampling, TokenSampling, requests_of
from models.engines.transformers_engine import TransformersEngine
from models.engines.voice import JointDecoding
from models.evaluation.evaluate import evaluate
from models.method.registry import parts
from models.policies.folder import save_model_folder
from models.policies.value_model import VALUES, ValueReading, save_value_model
from models.recipes.methods import strategies
from models.recipes.strategy import read_strategy
from tests.support.tiny_episodes import ENDING, Chatter, episodes
from tests.support.tiny_loops import PROBLEMS, TOKENIZER, save_start
from tests.support.tiny_models import tiny_policy

ROOM = 64
SETTINGS: dict[str, list[str]] = {
    "atomic_steps": ["steps=4", "marks=['5', '7']"],
    "beam": ["width=2", "expansions=2", "steps=4", "marks=['5', '7']"],
    "best_of_n": ["drafts=3"],
    "best_of_steps": ["values=START", "candidates=3"],
    "combined": ["tuned=START", "base=OTHER", "b=0.5"],
    "criticise_improve": ["rounds=2", "critique=7 ;", "improve=8 ;"],
    "grounded": ["actions=['3 + 4', '7', '5']"],
    "masked_actions": ["actions=['3 + 4', '7', '5']", "ways=[{name: '5', prompt: '3', only: '7|5'}, {name: '9'}]"],
    "prompt_graph": ["questions=[{name: a, ask: '3'}, {name: b, ask: '5', after: [a]}]"],
    "refine_tree": ["refinements=2", "critique=7 ;", "improve=8 ;", "grade=9 ;", "select=pairwise"],
    "society": ["members=['', '3', '4']", "structure=monarchy", "others='{answers} ;'"],
    "value_guided": ["values=[START]", "betas=[0.5]", "k=4"],
    "verified": ["tries=3", "pattern='5'"],
    "vote": ["drafts=3", "scorer=likelihood"],
}
"""The questions consist of words that the tiny policy knows."""
STRATEGIES = sorted(set(parts("strategy")) - {"in_mode"})
"""All strategies but `in_mode`, which needs prompts that end with the token of a mode (test_modes)."""


class Counting(TransformersEngine):
    """An engine that counts its calls, and the tokens that it reads and writes."""

    calls = read = written = 0

    def complete_with(
        self, requests: Sequence[CompletionRequest], drawing: TokenSampling, joint: JointDecoding
    ) -> list[Generated]:
        made = super().complete_with(requests, drawing, joint)
        self.calls += len(requests)
        self.read += sum(len(ask.prompt) for ask in requests)
        self.written += sum(len(generated.tokens) for generated in made)
        assert all(len(ask.prompt) + ask.max_tokens <= ROOM for ask in requests)
        return made

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        self.calls += len(prompts)
        self.read += sum(map(len, prompts)) + sum(map(len, completions))
        return super().score(prompts, completions)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a policy with a value model, and another policy with the same tokens in its folder `other`."""
    folder = save_start(tmp_path_factory.mktemp("policy"))
    other = tiny_policy(torch.float32, seed=1, spread=3.0)
    save_model_folder(other, TOKENIZER, folder / "other")
    save_value_model(other.model, torch.nn.Linear(64, 1), ValueReading(), folder / VALUES)
    return folder


@pytest.fixture
def engine(start: Path) -> Counting:
    return Counting(start, EngineSettings(precision="float32"), end=ENDING.ends)


def strategy_of(name: str, start: Path) -> Strategy:
    settings = [
        setting.replace("START", str(start)).replace("OTHER", str(start / "other"))
        for setting in SETTINGS.get(name, [])
    ]
    return read_strategy(name, [f"strategy.{setting}" for setting in settings])[0]


def measured(engine: Any, **options: Any) -> Any:
    played = episodes(Chatter(lasts=2), max_tokens=40).episodes
    sampling = Sampling(max_tokens=40, samples=2, log_probs=False)
    records = evaluate(engine, ENDING, PROBLEMS[:4], sampling, 3, None, episodes=played, **options)
    return [(record.greedy.text, record.greedy.turns, [sample.text for sample in record.samples]) for record in records]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("name", STRATEGIES)
def test_an_evaluation_in_episodes_takes_at_most_the_calls_that_the_strategy_says_and_counts_them(
    engine: Counting, start: Path, name: str
) -> None:
    strategy = strategy_of(name, start)
    strategic = Strategic(engine, ENDING, strategy, ROOM)
    measured(strategic)
    spent = strategic.policy.spent
    assert 0 < spent.turns < spent.calls or strategy.most_calls == 1
    assert spent.calls <= strategy.most_calls * spent.turns
    assert (spent.calls, spent.read, spent.written) == (engine.calls, engine.read, engine.written)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_turn_hangs_on_its_own_history_and_seed_and_not_on_its_neighbours(
    engine: Counting, start: Path, name: str
) -> None:
    requests = requests_of([problem.tokens for problem in PROBLEMS], Sampling(max_tokens=6, samples=2), 5)

    def made(chosen: Sequence[CompletionRequest]) -> list[tuple[int, ...]]:
        drawing = TokenSampling(log_probs=False)
        return [
            turn.tokens for turn in Strategic(engine, ENDING, strategy_of(name, start), ROOM).complete(chosen, drawing)
        ]

    together = made(requests)
    assert [made([ask])[0] for ask in requests] == together == made(requests[::-1])[::-1]
    assert len(set(together)) > 1


def test_without_a_strategy_and_with_the_plain_one_a_policy_answers_the_same_bit_for_bit(engine: Counting) -> None:
    strategic = Strategic(engine, ENDING, Plain(), ROOM)
    assert measured(strategic) == measured(engine)
    assert strategic.policy.spent.calls == strategic.policy.spent.turns


def test_a_strategy_that_asks_more_often_than_it_says_is_stopped(engine: Counting) -> None:
    class Greedy(Plain):
        def turns(
            self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
        ) -> list[Generated]:
            policy.draft(requests, drawing)
            return policy.draft(requests, drawing)

    requests = requests_of([PROBLEMS[0].tokens], Sampling(max_tokens=4), 1)
    with pytest.raises(RuntimeError, match="more often than it declares"):
        Strategic(engine, ENDING, Greedy(), ROOM).complete(requests, TokenSampling(log_probs=False))


def test_nothing_that_a_strategy_says_can_be_trained_on(engine: Counting) -> None:
    requests = requests_of([PROBLEMS[0].tokens], Sampling(max_tokens=4), 1)
    with pytest.raises(ValueError, match="no log-probs"):
        Strategic(engine, ENDING, Plain(), ROOM).complete(requests, TokenSampling())


def test_every_paper_of_inference_alone_is_listed_with_its_strategy() -> None:
    listed = {method.name: method for method in strategies()}
    papers = {"criticise_improve": "(48)", "society": "(22)", "prompt_graph": "(138)", "masked_actions": "(321)"}
    papers |= {"best_of_steps": "(355)", "cross_play": "(361)"}
    for name, number in papers.items():
        assert listed[name].paper.endswith(number) and listed[name].family == "agents"
    searches = {"beam": "(281)", "best_of_n": "(281)", "refine_tree": "(353)"}
    for name, number in searches.items():
        assert listed[name].paper.endswith(number) and listed[name].family == "inference-time-search"
    assert listed["verified"].paper.endswith("(315)") and listed["verified"].family == "imitation-learning"
    for name, number in {"combined": "(172)", "grounded": "(55)", "value_guided": "(166)"}.items():
        assert listed[name].paper.endswith(number) and listed[name].family == "inference-time-search"
    assert listed["in_mode"].paper.endswith("(245)") and listed["in_mode"].family == "safety"
    assert set(listed) == set(parts("strategy")) - {"plain"}


def test_a_cut_turn_is_criticised_by_nobody(engine: Counting, start: Path) -> None:
    ask = replace(requests_of([PROBLEMS[0].tokens], Sampling(max_tokens=1), 4)[0])
    strategic = Strategic(engine, ENDING, strategy_of("criticise_improve", start), ROOM)
    (turn,) = strategic.complete([ask], TokenSampling(log_probs=False))
    assert len(turn.tokens) == 1
    assert strategic.policy.spent.calls == (1 if not turn.finished else strategic.policy.spent.calls)
