"""Tests of a teacher's folder, and of recipes that name a teacher."""

from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.policies.folder import save_model_folder
from models.policies.teacher import TeacherSettings, check_vocabulary, open_frozen
from models.recipes.load import load_recipe
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_loops import TOKENIZER, save_start
from tests.support.tiny_models import tiny_policy

DISTIL = "extends: arithmetic\nobjective: {name: distillation}\n"
SERVED = "extends: arithmetic\nadvantage: judge_log_ratio\nselect: all\nteacher: {address: 'http://127.0.0.1:1/v1'}\n"


def test_a_teacher_of_another_size_is_opened_frozen(tmp_path: Path) -> None:
    teacher = tiny_policy(torch.float32, seed=1, hidden=32)
    save_model_folder(teacher, TOKENIZER, tmp_path / "teacher")
    opened = open_frozen(tmp_path / "teacher", TOKENIZER, "teacher.path", dtype=torch.float32)
    assert not opened.training and not any(parameter.requires_grad for parameter in opened.parameters())
    assert opened.config.hidden_size == 32


def test_a_teacher_of_another_vocabulary_is_refused_in_one_line_that_names_the_token(tmp_path: Path) -> None:
    save_start(tmp_path / "teacher")
    ours = train_tokenizer(["0 1 2 apple + = ; ####"], TokenizerSettings(kind="words", vocabulary=64))
    with pytest.raises(UserError, match=r"^teacher.path: .*teacher has another vocabulary than the policy: '\S+' is "):
        open_frozen(tmp_path / "teacher", ours, "teacher.path", dtype=torch.float32)


def test_more_rows_of_embeddings_than_tokens_are_no_other_vocabulary(tmp_path: Path) -> None:
    save_model_folder(tiny_policy(torch.float32, vocabulary=40), TOKENIZER, tmp_path / "teacher")
    assert open_frozen(tmp_path / "teacher", TOKENIZER, "teacher.path", dtype=torch.float32).config.vocab_size == 40
    check_vocabulary(tmp_path, TOKENIZER, TOKENIZER, "teacher.path")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "exactly one of path, recipe and address must be set; 0 are"),
        ({"path": "a", "recipe": "b"}, "2 are"),
        ({"path": "a", "address": "http://127.0.0.1:1/v1"}, "2 are"),
        ({"path": "a", "set": ("seed=1",)}, "teacher.set: overrides are for teacher.recipe"),
        ({"path": "a", "model": "b"}, "teacher.model: the name of a model is for teacher.address"),
    ],
)
def test_a_teacher_is_named_once(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match=line):
        TeacherSettings(**settings)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (DISTIL, "objective distillation learns from a teacher; set teacher.path to a model folder"),
        (DISTIL + "teacher: {path: t, contrast: {path: u}}", "teacher.contrast: no part of the recipe reads it"),
        (DISTIL + "teacher: {address: 'http://127.0.0.1:1/v1'}", "needs the teacher's weights, but one behind"),
        (DISTIL + "teacher: {path: t}\nrollouts: {top_p: 0.9}", "draws from a part of them; set rollouts.top_p to 1"),
        (SERVED + "rollouts: {temperature: 0.8}", "returns log-probs of temperature 1 and of all tokens"),
        (SERVED + "rollouts: {top_k: 20}", "set rollouts.temperature to 1, top_p to 1 and top_k to 0"),
        ("extends: arithmetic\nteacher: {path: t}", "teacher: no part of the recipe learns from one"),
        (
            "extends: arithmetic\nobjective: align_distil\nteacher: {path: t}",
            "sets the teacher apart from another model; set teacher.contrast.path",
        ),
        (
            "extends: arithmetic\nobjective: {name: distillation, judge: reference}",
            "objective distillation needs privileged, which rollouts sample does not give",
        ),
    ],
)
def test_what_does_not_fit_a_teacher_is_refused_with_the_key(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(UserError, match=line):
        load_recipe(tmp_path / "r.yaml")


@pytest.mark.parametrize("part", ["objective: {name: distillation}", "advantage: judge_log_ratio\nselect: all"])
def test_a_recipe_with_a_teacher_loads(tmp_path: Path, part: str) -> None:
    (tmp_path / "r.yaml").write_text(f"extends: arithmetic\n{part}\nteacher: {{path: t}}\n")
    teacher = load_recipe(tmp_path / "r.yaml").teacher
    assert teacher is not None and teacher.path == "t"
