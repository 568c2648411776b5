"""What must be true of the demonstrations that a warm start learns from, each test named as the theorem it checks."""

import pytest
from tiny_worlds import CODEC

from models.datasets.schema import arrow_schema, file_name, write_rows
from models.learner.supervised import SupervisedSettings
from tasks.steps.warm_start import demonstrations

RIGHT, WRONG = "1 + 2 = 3 ; #### 3", "1 + 2 = 4 ; #### 4"


@pytest.fixture
def data(tmp_path):
    common = {"prompt_id": "p", "prompt": "1 + 2 =", "answer": "3", "level": 1}
    shown = [(RIGHT, "none"), (WRONG, "slip")]
    rows = [common | {"id": f"d{n}", "completion": text, "flaw": flaw} for n, (text, flaw) in enumerate(shown)]
    write_rows(tmp_path / file_name("demonstrations", "train"), rows, arrow_schema("demonstrations"))
    return tmp_path


def shown(data, **settings):
    sequences = demonstrations(data, CODEC, "train", 64, SupervisedSettings(**settings))
    prompts = CODEC.text([list(ids) for ids in sequences.prompts])
    return list(zip(prompts, CODEC.text(sequences.completions), strict=True))


def test_all_of_them_are_shown_where_nothing_is_said(data):
    assert shown(data) == [("1 + 2 =", RIGHT), ("1 + 2 =", WRONG)]


def test_only_those_that_state_the_true_answer_are_shown_where_the_recipe_wants_no_others(data):
    assert shown(data, only_right=True) == [("1 + 2 =", RIGHT)]


@pytest.mark.parametrize(("tells", "hint"), [("answer", "3"), ("demonstration", RIGHT)])
def test_those_that_are_right_are_shown_once_more_behind_what_a_judge_is_told(data, tells, hint):
    sequences = shown(data, context="{prompt} ; {told} ;", tells=tells)
    assert sequences == [("1 + 2 =", RIGHT), ("1 + 2 =", WRONG), (f"1 + 2 = ; {hint} ;", RIGHT)]


def test_what_does_not_fit_is_left_out_with_its_context(data):
    sequences = demonstrations(data, CODEC, "train", 13, SupervisedSettings(context="{prompt} ; {told} ;"))
    assert len(sequences) == 2
