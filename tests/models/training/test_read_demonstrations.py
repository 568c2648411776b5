"""Demonstrations for a warm start: selection of right ones, further copies with a context, and limits of length."""

from pathlib import Path
from typing import Any

import pytest

from models.agents.environments.solver import Solver
from models.datasets.schema import arrow_schema, file_name, write_rows
from models.learner.supervised import SupervisedSettings
from models.parts.feedback.verdict import VerdictFeedback
from models.parts.rewards.code.unit_tests import UnitTests
from models.recipes.load import load_recipe
from models.sandbox.settings import SandboxSettings
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from models.training.read_demonstrations import demonstrations
from tests.support.tiny_resources import CODEC

PROMPT = 'def f(x):\n    """One more than x."""\n'
RIGHT, WRONG = "1 + 2 = 3 ; #### 3", "1 + 2 = 4 ; #### 4"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    common = {"prompt_id": "p", "prompt": "1 + 2 =", "answer": "3", "level": 1}
    shown = [(RIGHT, "none"), (WRONG, "slip")]
    rows = [common | {"id": f"d{n}", "completion": text, "flaw": flaw} for n, (text, flaw) in enumerate(shown)]
    write_rows(tmp_path / file_name("demonstrations", "train"), rows, arrow_schema("demonstrations"))
    return tmp_path


def shown(data: Path, **settings: Any) -> Any:
    sequences = demonstrations(data, CODEC, "train", 64, SupervisedSettings(**settings))
    prompts = CODEC.text([list(ids) for ids in sequences.prompts])
    return list(zip(prompts, CODEC.text(sequences.completions), strict=True))


def test_all_of_them_are_shown_where_nothing_is_said(data: Path) -> None:
    assert shown(data) == [("1 + 2 =", RIGHT), ("1 + 2 =", WRONG)]


def test_only_those_that_state_the_true_answer_are_shown_where_the_recipe_wants_no_others(data: Path) -> None:
    assert shown(data, only_right=True) == [("1 + 2 =", RIGHT)]


def test_where_tests_are_run_only_programs_that_pass_those_of_their_problem_are_right(tmp_path: Path) -> None:
    """The stated answer does not count. A demonstration whose problem has no tests is not right, as in evaluations."""
    tests = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(4) == 5\n"
    problem = {"id": "p", "prompt": PROMPT, "answer": "", "level": 1, "tests": tests, "entry_point": "f"}
    write_rows(tmp_path / file_name("problems", "train"), [problem], arrow_schema("problems"))
    common = {"prompt": PROMPT, "level": 1, "flaw": "none"}
    said = [
        ("p", "    return x + 1\n", ""),
        ("p", "    return 2\n", ""),
        ("p", "    return 2  ; #### 7", "7"),
        ("untested", "    return x + 1\n", ""),
    ]
    rows = [
        common | {"id": f"d{n}", "prompt_id": of, "completion": text, "answer": answer}
        for n, (of, text, answer) in enumerate(said)
    ]
    write_rows(tmp_path / file_name("demonstrations", "train"), rows, arrow_schema("demonstrations"))
    settings = SupervisedSettings(only_right=True)
    verifier = UnitTests(sandbox=SandboxSettings(seconds=30, seconds_together=60))
    codec = Codec(train_tokenizer(["any"], TokenizerSettings(kind="bytes", vocabulary=259)))

    def kept(verifier: Any) -> Any:
        return codec.text(demonstrations(tmp_path, codec, "train", 200, settings, verifier=verifier).completions)

    assert kept(verifier) == [said[0][1]]
    assert kept(None) == [said[2][1]]


def test_the_warm_starts_verifier_is_that_of_evaluations_where_it_asks_what_is_right() -> None:
    assert load_recipe("humaneval").shown_verifier is None
    asking = load_recipe("humaneval", ["warm_start.only_right=true"])
    assert asking.shown_verifier is asking.verifier is not None


@pytest.mark.parametrize(("shows", "hint"), [("answer", "3"), ("demonstration", RIGHT)])
def test_those_that_are_right_are_shown_once_more_behind_what_a_judge_is_told(
    data: Path, shows: str, hint: str
) -> None:
    sequences = shown(data, context="{prompt} ; {shown} ;", shows=shows)
    assert sequences == [("1 + 2 =", RIGHT), ("1 + 2 =", WRONG), (f"1 + 2 = ; {hint} ;", RIGHT)]


def test_those_that_are_right_are_shown_once_more_behind_a_wrong_one_and_what_is_said_of_it(data: Path) -> None:
    settings = SupervisedSettings(context="{prompt} ; {shown} ; {prompt}", shows="feedback")
    said = VerdictFeedback(right="right", wrong="= {answer}")
    sequences = demonstrations(data, CODEC, "train", 64, settings, adviser=said)
    prompts = CODEC.text([list(ids) for ids in sequences.prompts])
    assert prompts == ["1 + 2 =", "1 + 2 =", f"1 + 2 = ; {WRONG} = 3 ; 1 + 2 ="]
    assert CODEC.text(sequences.completions) == [RIGHT, WRONG, RIGHT]


def test_each_is_shown_once_more_behind_the_next_of_its_prompt_where_another_is_told(data: Path) -> None:
    context = "{prompt} ; {shown} ; {prompt}"
    behind = [f"1 + 2 = ; {before} ; 1 + 2 =" for before in (WRONG, RIGHT)]
    assert shown(data, context=context, shows="another") == [
        ("1 + 2 =", RIGHT), ("1 + 2 =", WRONG), (behind[0], RIGHT), (behind[1], WRONG),
    ]  # fmt: skip
    assert shown(data, context=context, shows="another", only_right=True) == [("1 + 2 =", RIGHT), (behind[0], RIGHT)]


def test_the_only_demonstration_of_a_prompt_stands_behind_no_other(tmp_path: Path) -> None:
    row = {"id": "d", "prompt_id": "p", "prompt": "1 + 2 =", "answer": "3", "level": 1, "completion": RIGHT, "flaw": ""}
    write_rows(tmp_path / file_name("demonstrations", "train"), [row], arrow_schema("demonstrations"))
    settings = SupervisedSettings(context="{prompt} {shown}", shows="another")
    assert len(demonstrations(tmp_path, CODEC, "train", 64, settings)) == 1


def test_a_prompt_without_a_wrong_demonstration_is_shown_no_feedback(tmp_path: Path) -> None:
    row = {"id": "d", "prompt_id": "p", "prompt": "1 + 2 =", "answer": "3", "level": 1, "completion": RIGHT, "flaw": ""}
    write_rows(tmp_path / file_name("demonstrations", "train"), [row], arrow_schema("demonstrations"))
    settings = SupervisedSettings(context="{prompt} {shown}", shows="feedback")
    assert len(demonstrations(tmp_path, CODEC, "train", 64, settings, adviser=VerdictFeedback())) == 1


def test_what_does_not_fit_is_left_out_with_its_context(data: Path) -> None:
    sequences = demonstrations(data, CODEC, "train", 13, SupervisedSettings(context="{prompt} ; {shown} ;"))
    assert len(sequences) == 2


def test_an_environment_that_teaches_adds_its_lessons_after_the_demonstrations(data: Path) -> None:
    environment = Solver(taught=True, between=" ; ", form="{prompt} ; {prepared}", asks=";")
    made = demonstrations(data, CODEC, "train", 64, role="user", teaches=environment)
    rows = list(zip(CODEC.text([list(ids) for ids in made.prompts]), CODEC.text(made.completions), strict=True))
    assert rows[:2] == [("1 + 2 =", RIGHT), ("1 + 2 =", WRONG)]
    assert rows[2:] == [("1 + 2 = ;", "1 + 2 = 3"), ("1 + 2 = ; 1 + 2 = 3", RIGHT)]
    short = demonstrations(data, CODEC, "train", 16, role="user", teaches=environment)
    assert len(short) == 3  # the last lesson is too long
