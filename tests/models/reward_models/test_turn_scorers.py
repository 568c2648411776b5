"""The scorers of turns: each value is that of the model which the setting names, and wrong folders are refused."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from models.agents.strategy import CountedPolicy
from models.agents.turn_scorer import ScorerSettings, log_value, weights_of
from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.packing import Sequences
from models.policies.folder import save_model_folder
from models.policies.value_model import VALUES, ValueReading, load_value_model, save_value_model
from models.reward_models.critic.action_values import (
    ACTION_VALUES,
    ActionValues,
    load_action_values,
    save_action_values,
)
from models.reward_models.model import reward_model_from_policy, score
from models.reward_models.process import ProcessReading, aggregated, step_values, write_reading
from models.reward_models.turn_scorers import open_turn_scorer
from tests.support.tiny_judges import save_judge
from tests.support.tiny_loops import TOKENIZER, save_start
from tests.support.tiny_models import plain_log_probs, tiny_policy
from tests.support.tiny_resources import CODEC

PROMPTS = CODEC.prompts(["1 + 2 =", "8 = ;", "8 = ;"])
TURNS = CODEC.completions(["3 ; #### 3", "9", "7 ; 7 ; 8"])
ROWS = Sequences(PROMPTS, TURNS)


def some(model: nn.Module) -> Any:
    """Give the weights of a head values that are far from zero."""
    generator = torch.Generator().manual_seed(5)
    for name, parameter in model.named_parameters():
        if "head" in name or "score" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Save a policy and the models that score its turns, and return their folders."""
    place = tmp_path_factory.mktemp("models")
    start = save_start(place / "policy")
    made = {"policy": start, "reward": place / "reward", "process": place / "process"}
    reward = some(reward_model_from_policy(start, seed=3))
    save_model_folder(reward, TOKENIZER, made["reward"])
    reading = ProcessReading(aggregate="product")
    save_model_folder(reward, TOKENIZER, made["process"], lambda folder: write_reading(folder, reading))
    policy = tiny_policy(torch.float32, seed=4, spread=2.0)
    made["critic"] = place / "critic"
    save_action_values(some(ActionValues(policy)), made["critic"] / ACTION_VALUES)
    made["values"] = place / "values"
    save_value_model(
        policy.model, some(nn.ModuleDict({"head": nn.Linear(64, 1)}))["head"], ValueReading(), made["values"] / VALUES
    )
    return made


def values_of(settings: ScorerSettings, **options: Any) -> list[float]:
    scorer = open_turn_scorer(settings, CODEC, options.pop("learned_from", None), seed=1, **options)
    assert scorer is not None
    values = scorer(PROMPTS, TURNS)
    assert scorer.read == sum(map(len, PROMPTS)) + sum(map(len, TURNS))
    return values


def test_a_reward_model_gives_its_score_and_without_a_path_it_is_that_of_the_version(folders: dict[str, Path]) -> None:
    model = some(reward_model_from_policy(folders["policy"], seed=3))
    with torch.no_grad():
        expected = score(model, ROWS).tolist()
    by_path = values_of(ScorerSettings(name="reward_model", path=str(folders["reward"])))
    assert by_path == pytest.approx(expected, rel=1e-5) and len({*expected}) == 3
    assert values_of(ScorerSettings(name="reward_model"), learned_from=folders["reward"]) == by_path


@pytest.mark.parametrize("rule", ["model", "min", "mean", "last"])
def test_a_process_model_gives_the_aggregated_values_of_its_steps(folders: dict[str, Path], rule: Any) -> None:
    model = some(reward_model_from_policy(folders["policy"], seed=3))
    values = step_values(model, ROWS, ProcessReading().ends(CODEC, TURNS))
    expected = [float(aggregated(row, "product" if rule == "model" else rule)) for row in values]
    settings = ScorerSettings(name="process_model", path=str(folders["process"]), aggregate=rule)
    assert values_of(settings) == pytest.approx(expected, rel=1e-5)


def test_a_critic_gives_the_value_at_the_last_token_of_a_turn_and_survives_its_folder(
    folders: dict[str, Path],
) -> None:
    critic = some(ActionValues(tiny_policy(torch.float32, seed=4, spread=2.0)))
    with torch.no_grad():
        expected = critic.values(critic.features(PROMPTS, TURNS, 4096)).tolist()
        loaded = load_action_values(folders["critic"] / ACTION_VALUES)
        assert loaded.values(loaded.features(PROMPTS, TURNS, 4096)).tolist() == expected
    for place in (folders["critic"], folders["critic"] / ACTION_VALUES):
        assert values_of(ScorerSettings(name="critic", path=str(place))) == pytest.approx(expected, rel=1e-6)
    of_texts = load_value_model(folders["values"]).of_texts(PROMPTS, TURNS)
    assert values_of(ScorerSettings(name="critic", path=str(folders["values"]))) == pytest.approx(of_texts, rel=1e-6)


def test_the_likelihood_is_the_mean_log_prob_of_a_turn_under_the_policy(folders: dict[str, Path]) -> None:
    engine = TransformersEngine(folders["policy"], EngineSettings(precision="float32"), end=CODEC.ends)
    policy = CountedPolicy(engine, CODEC, 64)
    policy.begin(3, 3)
    expected = [float(row.double().mean()) for row in plain_log_probs(engine.model, ROWS)]
    assert policy.values(ScorerSettings(), PROMPTS, TURNS) == pytest.approx(expected, abs=1e-5)
    assert policy.spent.calls == 3 and policy.spent.scored == 0
    assert open_turn_scorer(ScorerSettings(), CODEC, None, seed=1) is None


def test_a_judge_gives_the_mean_score_of_its_votes_as_a_share_and_0_without_a_verdict(tmp_path: Path) -> None:
    texts = ["1 + 2 = 3 ; #### 3", "8 = ; 9", "8 = ; 7 ; 7 ; 8"]
    folder = save_judge(tmp_path / "judge", dict(zip(texts, ["#### 9", "#### 3", "3"], strict=True)))
    template = "{prompt} {completion}"
    settings = ScorerSettings(name="judge", path=str(folder), template=template, votes=4)
    first, second, third = values_of(settings)
    assert first > 0.8 and abs(second - 1 / 3) < 0.25 and third < 0.2
    assert values_of(settings) == [first, second, third], "the votes have seeds"


def test_what_the_policy_reads_between_prompt_and_turn_is_not_read_by_a_scorer(folders: dict[str, Path]) -> None:
    settings = ScorerSettings(name="reward_model", path=str(folders["reward"]))
    scorer = open_turn_scorer(settings, CODEC, None, seed=1, after_prompt=(9, 8))
    assert scorer is not None
    assert scorer([(*ids, 9, 8) for ids in PROMPTS], TURNS) == values_of(settings)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (lambda f: {"name": "reward_model"}, "learned from no reward model; name the folder of the reward model"),
        (lambda f: {"name": "critic"}, "strategy.scorer.path: name the folder of the critic"),
        (lambda f: {"name": "judge"}, "name the folder of the judge, or its server as strategy.scorer.address"),
        (lambda f: {"name": "reward_model", "path": str(f["process"])}, "is a process model; set strategy.scorer.name"),
        (lambda f: {"name": "process_model", "path": str(f["reward"])}, "is a reward model; set strategy.scorer.name"),
        (lambda f: {"name": "process_model", "path": "/nowhere"}, "/nowhere: no such model folder"),
        (lambda f: {"name": "critic", "path": str(f["reward"])}, "holds no value model"),
        (lambda f: {"name": "judge", "path": str(f["policy"]), "template": "{prompt}"}, "strategy.scorer.template"),
    ],
)
def test_a_missing_or_other_model_is_refused_in_a_line(
    folders: dict[str, Path], settings: Callable[[dict[str, Path]], dict[str, Any]], line: str
) -> None:
    with pytest.raises(UserError, match=line) as refused:
        open_turn_scorer(ScorerSettings(**settings(folders)), CODEC, None, seed=1)
    assert "\n" not in str(refused.value)


def test_settings_that_exclude_each_other_are_refused_in_a_line() -> None:
    for options, line in (
        ({"name": "likelihood", "path": "x"}, "likelihood reads no folder"),
        ({"name": "critic", "address": "http://127.0.0.1:1/v1"}, "only a judge may be on a server"),
        ({"name": "judge", "path": "x", "address": "http://127.0.0.1:1/v1"}, "set one of them"),
        ({"name": "judge", "lowest": 3.0, "highest": 3.0}, "lowest is 3, not below highest, 3"),
    ):
        with pytest.raises(UserError, match=line):
            ScorerSettings(**options)  # type: ignore[arg-type]


def test_weights_and_log_values_by_hand() -> None:
    assert weights_of([0.2, -0.1, 0.7], "share") == [0.2, 0.0, 0.7]
    assert weights_of([1.0, 0.0], "odds") == pytest.approx([1.0, math.exp(-1)])
    assert weights_of([-math.inf, -2.0], "log") == [0.0, 1.0]
    assert weights_of([-math.inf, -math.inf], "log") == [1.0, 1.0] and weights_of([], "odds") == []
    assert log_value(0.25, "share") == math.log(0.25) and log_value(7.0, "share") == 0.0
    assert log_value(-1.0, "share") == math.log(1e-9) and log_value(-3.0, "log") == -3.0
    for odds in (-40.0, -1.0, 0.0, 2.0, 800.0):
        assert log_value(odds, "odds") == pytest.approx(
            float(torch.nn.functional.logsigmoid(torch.tensor(odds).double()))
        )
