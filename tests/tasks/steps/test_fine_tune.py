"""Fine-tuning step: resumption, records and warnings, tested with the real loop, checkpoints and store."""

import logging
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from small_steps import context, warm_started

from models.learner.precision import shape_of
from models.policies.build import load_causal_model
from models.recipes.load import load_recipe
from tasks.compute import fitting, shared_engine
from tasks.runner.step import earlier_result
from tasks.steps import fine_tune as step
from tasks.tracking import tags

RECIPE = """
reward_model: null
rollouts: {name: sample, prompts: 3, group_size: 2, max_tokens: 5}
select: {name: all}
engine: {name: transformers}
policy: {precision: float32, size: {positions: 64}}
schedule: {rounds: 3, checkpoint_every: 1, samples_every: 3}
"""


@pytest.fixture
def inputs(tmp_path, monkeypatch, new_store):
    """Make the inputs of the task: clean problems, a warm start that is in the store, and a run of a flow."""
    monkeypatch.chdir(tmp_path)
    new_store(tmp_path / "home")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    # outside of a flow, Prefect provides neither a logger nor the slot on the GPU
    for module in (step, fitting):
        monkeypatch.setattr(module, "get_run_logger", lambda: logging.getLogger("fine_tune"))
    monkeypatch.setattr(shared_engine, "gpu_slot", nullcontext)
    return warm_started(tmp_path)


def handed(inputs, *overrides):
    """Return the step's arguments."""
    sections = step.FineTuneSections(load_recipe("tiny.yaml", list(overrides)))
    given = context(inputs["home"], "fine_tune", "k" * 64, inputs["run"], sections)
    return given, inputs["validated"], inputs["warmed"], inputs["rewarded"], {}


@pytest.mark.rotating(of=6)
def test_a_training_stopped_before_its_result_is_written_keeps_its_checkpoints_and_goes_on(inputs, monkeypatch, caplog):
    def stopped(*arguments):
        raise KeyboardInterrupt

    given, *_ = handed(inputs)
    with monkeypatch.context() as patch:
        patch.setattr(step, "changed_share_of_files", stopped)
        with pytest.raises(KeyboardInterrupt):
            step.fine_tune.fn(*handed(inputs))
    assert not earlier_result(given)
    assert sorted(entry.name for entry in (given.folder / "checkpoints").iterdir())[-1] == "round_000002"

    with caplog.at_level(logging.INFO, logger="fine_tune"):
        result = step.fine_tune.fn(*handed(inputs))
    assert "going on from the checkpoint after round 2" in caplog.text
    assert earlier_result(given) and not (given.folder / "checkpoints").exists()
    assert result.digest and "in 3 rounds" in result.headline


@pytest.mark.rotating(of=6)
def test_precision_and_shape_of_the_policy_are_recorded_before_the_first_round(inputs, monkeypatch):
    """`rewardflow reproduce` reads both tags to fix the precision of a model of this shape."""
    given, *rest = handed(inputs)
    seen = []
    monkeypatch.setattr(fitting.interrupt, "raise_again", lambda: seen.append(dict(recorded)))
    recorded = {}
    monkeypatch.setattr(fitting.runs, "set_tags", lambda run_id, values: recorded.update(values))
    step.fine_tune.fn(given, *rest)
    policy = load_causal_model(Path(inputs["warmed"].folder) / "policy", torch.float32)
    assert seen[0] == {tags.PRECISION: "float32", tags.PRECISION_OF: shape_of(policy)}


@pytest.mark.rotating(of=6)
def test_a_run_whose_rounds_change_no_weight_says_so_and_why(inputs, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("rewardflow.steps"), "disabled", False)
    with caplog.at_level(logging.WARNING):
        result = step.fine_tune.fn(*handed(inputs, "schedule.optimiser.learning_rate=0.0"))
    why = step.why_not_learned(result)
    assert why.startswith("no round changed the weights: of 3 rounds, ") and "the learning rate was 0 in 3" in why
    assert why in result.headline and why in caplog.text
    assert result.metrics["update/changed_share"] == 0.0
    assert "fine-tune: nothing can be learned from the first 2 rounds" in caplog.text


@pytest.mark.rotating(of=6)
def test_a_run_that_changes_weights_says_nothing(inputs):
    # the entropy bonus has a gradient even if all rewards of a group are equal
    result = step.fine_tune.fn(*handed(inputs, "objective.entropy_bonus=0.1"))
    assert step.why_not_learned(result) == "" and result.metrics["update/changed_share"] > 0


FLAKY = """
calls = []
def reward(completions):
    calls.append(1)
    if len(calls) == 3:  # the first is the one before anything starts
        raise ConnectionError("the judge is away")
    return [float(len(text)) for text in completions]
"""


@pytest.mark.rotating(of=6)
def test_what_a_reward_gave_no_value_for_stands_in_the_result_of_the_step(inputs, tmp_path):
    (tmp_path / "flaky.py").write_text(FLAKY)
    given = handed(inputs, "rewards={name: python, path: flaky.py, label: judge, limits: {retries: 0}}")
    given[0].recipe.slots.rewards[0].try_out()
    result = step.fine_tune.fn(*given)
    assert "; judge gave no value for 6 completions" in result.headline
    assert result.metrics["rewards/judge/all_failures"] == 6.0
