"""Fine-tuning with a frozen teacher: the policy approaches it, and its content is part of the step's key."""

import logging
from contextlib import nullcontext

import pytest
import torch
from small_steps import context, warm_started

from models.base.errors import UserError
from models.policies.folder import save_model_folder
from models.recipes.load import load_recipe
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tasks.compute import shared_engine
from tasks.registered.policy import given_policy
from tasks.runner.step import content_key
from tasks.steps import fine_tune as step
from tasks.tracking import store, tags
from tests.support.tiny_loops import TOKENIZER
from tests.support.tiny_models import tiny_policy

RECIPE = """
reward_model: null
rollouts: {name: sample, prompts: 3, group_size: 2, max_tokens: 5}
select: {name: all}
advantage: none
objective: {name: distillation, beta: 1.0}
teacher: {path: teacher}
engine: {name: transformers}
policy: {precision: float32, size: {positions: 64}}
schedule: {rounds: 12, checkpoint_every: 4, samples_every: 12, optimiser: {learning_rate: 0.003}}
"""


@pytest.fixture
def inputs(tmp_path, monkeypatch, new_store):
    """Make the inputs of the task, and a teacher in the folder of the recipe."""
    monkeypatch.chdir(tmp_path)
    new_store(tmp_path / "home")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    monkeypatch.setattr(step, "get_run_logger", lambda: logging.getLogger("fine_tune"))
    monkeypatch.setattr(shared_engine, "gpu_slot", nullcontext)
    save_model_folder(tiny_policy(torch.float32, seed=1, spread=3.0, hidden=32), TOKENIZER, tmp_path / "teacher")
    return warm_started(tmp_path)


def fine_tuned(inputs):
    """Return the step's result with the teacher that is in the folder now."""
    sections = step.FineTuneSections(load_recipe("tiny.yaml"))
    given = context(inputs["home"], "fine_tune", "k" * 64, inputs["run"], sections)
    teachers = {"teacher": given_policy("teacher")}
    return step.fine_tune.fn(given, inputs["validated"], inputs["warmed"], inputs["rewarded"], teachers)


@pytest.mark.rotating(of=6)
def test_the_policy_comes_nearer_to_its_teacher_whose_content_stands_on_the_run(inputs):
    result = fine_tuned(inputs)
    values = [entry.value for entry in store.client().get_metric_history(result.run_id, "policy/divergence")]
    assert len(values) == 12 and sum(values[-3:]) < 0.7 * sum(values[:3])
    run = store.client().get_run(result.run_id)
    assert run.data.tags[tags.FROZEN["teacher"]] == given_policy("teacher").digest


def test_another_teacher_in_the_same_folder_is_another_run(inputs, tmp_path):
    def key():
        sections = step.FineTuneSections(load_recipe("tiny.yaml"))
        return content_key("fine_tune", sections, inputs["validated"], inputs["warmed"], None, {})

    before = key()
    assert key() == before
    save_model_folder(tiny_policy(torch.float32, seed=2, hidden=32), TOKENIZER, tmp_path / "teacher")
    assert key() != before


def test_a_teacher_of_another_vocabulary_stops_the_step_in_one_line(inputs, tmp_path):
    other = train_tokenizer(["0 1 2 apple + = ; ####"], TokenizerSettings(kind="words", vocabulary=64))
    save_model_folder(tiny_policy(torch.float32), other, tmp_path / "teacher")
    with pytest.raises(UserError, match=r"^teacher: .*teacher has another vocabulary than the policy"):
        fine_tuned(inputs)
