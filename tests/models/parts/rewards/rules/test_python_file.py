"""A reward in the user's own Python file: its arguments and values, refused files, failed calls, and isolation."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.base.errors import UserError
from models.method.reward import Limits
from models.method.rollout import Rollout
from models.parts.rewards.rules.python_file import PythonReward
from models.recipes.files import require_files
from models.recipes.load import digest, load_recipe, plain
from models.training.score import score
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources

BASE = "extends: arithmetic\nselect: {name: drop_flat, by: total}\n"
TRL = """
def reward(prompts, completions, answers, **others):
    assert set(others) == {"ids", "levels", "completion_ids", "finished", "groups"}
    return [float(answer in completion) for completion, answer in zip(completions, answers)]
"""
VERL = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(ground_truth in solution_str) + 0.5 * extra_info["finished"], "acc": 1}
"""


def rollouts() -> list[Rollout]:
    texts, answers = ["4 + 3 = 7", "8", "9 !", ""], ["7", "9", "9", "1"]
    return [
        replace(rollout, text=text, problem=replace(rollout.problem, answer=answer), finished=text != "")
        for rollout, text, answer in zip(scored([0.0] * 4, [2, 2]).rollouts, texts, answers, strict=True)
    ]


def own(folder: Path, code: str, **settings: object) -> PythonReward:
    file = folder / "my_reward.py"
    file.write_text(code)
    return PythonReward(path=str(file), **settings)  # type: ignore[arg-type]


def recipe_in(folder: Path, reward: str = "{name: python, path: my_reward.py}") -> Path:
    file = folder / "own.yaml"
    file.write_text(f"{BASE}rewards: {reward}\n")
    return file


def test_a_function_of_all_completions_is_given_columns_as_trls_are(tmp_path: Path) -> None:
    reward = own(tmp_path, TRL)
    reward.try_out()
    assert reward(make_resources(), rollouts()).tolist() == [1.0, 0.0, 1.0, 0.0]


def test_a_function_of_one_completion_is_asked_as_verls_is(tmp_path: Path) -> None:
    reward = own(tmp_path, VERL, function="compute_score")
    reward.try_out()
    assert reward(make_resources(), rollouts()).tolist() == [1.5, 0.5, 1.5, 0.0]


def test_what_a_function_may_name_is_what_it_is_given(tmp_path: Path) -> None:
    names = ("prompts", "completions", "answers", "ids", "levels", "completion_ids", "finished", "groups")
    for name in names:
        own(tmp_path, f"def reward({name}, mine=3): return [float(len(str(x))) for x in {name}]").try_out()
    given = rollouts()
    code = (
        "def reward(ids, groups, finished, completion_ids): return [len(i) + 10*g + 100*f + 1000*c[0] for i, g, f, c "
    )
    values = own(tmp_path, code + "in zip(ids, groups, finished, completion_ids)]")(make_resources(), given)
    assert values.tolist() == [1102.0, 1102.0, 1112.0, 1012.0]


@pytest.mark.parametrize("kind", ["list", "numpy.array", "torch.tensor"])
def test_numbers_may_come_as_a_list_an_array_or_a_tensor(tmp_path: Path, kind: str) -> None:
    code = f"import numpy, torch\ndef reward(completions): return {kind}([len(c) for c in completions])"
    assert own(tmp_path, code)(make_resources(), rollouts()).tolist() == [9.0, 1.0, 3.0, 0.0]


WRONG = {
    "no file": (None, "{name: python, path: gone.py}", r"rewards\.python\.path: .*gone\.py: no such file"),
    "no path": (None, "{name: python}", r"rewards\.python\.path: name the file that defines the function reward"),
    "a folder": (None, "{name: python, path: .}", r"rewards\.python\.path: .*cannot be read \(Is a directory\)"),
    "no python": ("def reward(:\n", None, r"my_reward\.py, line 1: no valid Python \(invalid syntax\)"),
    "bytes": ("\0", None, "no valid Python"),
    "raises": ("import nothing_like_it", None, "running it raises ModuleNotFoundError: No module named 'nothing_like"),
    "no function": ("def other(): ...", None, "no function is called reward; there is other"),
    "no callable": ("reward = 3", None, "no function is called reward; there is none"),
    "asynchronous": ("async def reward(completions): ...", None, "reward is asynchronous"),
    "asks for more": (
        "def reward(completions, solution): ...",
        None,
        "reward asks for solution, which a reward is not",
    ),
    "by place": ("def reward(completions, /): ...", None, "asks for completions, which a reward is not given by name"),
    "nothing": ("def reward(completions): ...", None, "TypeError: it returns a NoneType, not a list of numbers"),
    "text": ("def reward(completions): return ['1' for c in completions]", None, r"TypeError: it returns '1' \(str\)"),
    "text for all": ("def reward(completions): return 'good'", None, "TypeError: it returns a str, not a list"),
    "exits": (
        "import sys\ndef reward(completions): sys.exit(0)",
        None,
        r"my_reward\.py, line 2: called sys\.exit\(0\)",
    ),
    "exits when it is imported": (
        "import sys\nsys.exit(0)\ndef reward(completions): ...",
        None,
        r"my_reward\.py, line 2: importing it called sys\.exit\(0\); put .* under `if __name__",
    ),
    "parses arguments": (
        "import argparse\nargparse.ArgumentParser().parse_args()\ndef reward(completions): ...",
        None,
        r"my_reward\.py, line 2: importing it called sys\.exit\(2\) \(.*unrecognized arguments: --imported-by-rewardf",
    ),
    "requires arguments": (
        "import argparse\nargs = argparse.ArgumentParser()\nargs.add_argument('--model', required=True)\n"
        "args.parse_args()\ndef reward(completions): ...",
        None,
        "my_reward.py, line 4: importing it called sys.exit.*required: --model",
    ),
    "too few": ("def reward(completions): return [1.0]", None, "ValueError: it returns 1 values for 3 completions"),
    "nan": ("def reward(completions): return [float('nan')] * 3", None, "gives a value that is not finite"),
    "throws": (
        "def reward(completions): return [1 / len(c) for c in completions]",
        None,
        "ZeroDivisionError: division",
    ),
    "hangs": (
        "import time\ndef reward(completions): time.sleep(60)",
        "{name: python, path: my_reward.py, limits: {seconds: 0.1}}",
        "TimeoutError: took longer than 0.1 s",
    ),
    "hangs when it is imported": (
        "while True: pass",
        "{name: python, path: my_reward.py, limits: {seconds: 0.1}}",
        "TimeoutError: took longer than 0.1 s",
    ),
    "other content": (
        "def reward(completions): return [1.0] * len(completions)",
        "{name: python, path: my_reward.py, sha256: abc}",
        "has other content than sha256 says: [0-9a-f]{64}",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_file_that_does_not_work_is_refused_at_the_start_with_one_line(tmp_path: Path, kind: str) -> None:
    code, reward, line = WRONG[kind]
    if code is not None:
        (tmp_path / "my_reward.py").write_text(code)
    with pytest.raises(UserError, match=line) as refused:
        require_files(load_recipe(recipe_in(tmp_path, reward or "{name: python, path: my_reward.py}")))
    assert "\n" not in str(refused.value)


def test_reading_a_recipe_runs_nothing_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "my_reward.py").write_text("raise SystemExit('run')\n")
    load_recipe(recipe_in(tmp_path))


def test_a_path_is_meant_from_the_file_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below, above, here = tmp_path / "below", tmp_path / "above", tmp_path / "here"
    for folder in (below, above, here):
        folder.mkdir()
    (below / "mine.py").write_text(TRL)
    base = below / "base.yaml"
    base.write_text(f"{BASE}rewards: [{{name: python, path: mine.py}}]\n")
    (below / "child.yaml").write_text("extends: base\nseed: 3\n")
    for recipe in ("base", "child"):
        assert plain(load_recipe(below / f"{recipe}.yaml"))["rewards"][0]["path"] == str(below / "mine.py")
    (here / "typed.py").write_text(TRL + "\n")
    monkeypatch.chdir(here)
    base.write_text("rewards: [{name: python, path: mine.py}]\nselect: all\nreward_model: null\n")
    typed = load_recipe(base, ["rewards.0.path=typed.py"])  # a path in an override is relative to the current folder
    assert plain(typed)["rewards"][0]["path"] == "typed.py"


def test_another_content_of_the_file_is_another_recipe(tmp_path: Path) -> None:
    file, recipe = tmp_path / "my_reward.py", recipe_in(tmp_path)
    seen = []
    for code in (TRL, TRL + "\n", TRL):
        file.write_text(code)
        seen.append(digest(plain(load_recipe(recipe))))
    assert seen[0] == seen[2] != seen[1]


def test_what_runs_is_what_was_hashed_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "my_reward.py").write_text("def reward(completions): return [1.0] * len(completions)")
    reward = load_recipe(recipe_in(tmp_path)).rewards[0]
    (tmp_path / "my_reward.py").write_text("def reward(completions): return [2.0] * len(completions)")
    assert reward(make_resources(), rollouts()).tolist() == [1.0] * 4
    assert load_recipe(recipe_in(tmp_path)).rewards[0](make_resources(), rollouts()).tolist() == [2.0] * 4


def test_one_completion_that_breaks_a_function_of_one_costs_no_other_its_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = "def reward(solution_str): return 1 / len(solution_str)"
    reward = own(tmp_path, code, limits=Limits(value=-3.0, retries=0))
    scored = score(make_resources(), [reward], rollouts())
    assert scored.rewards[3] == -3.0 and scored.rewards[1] == 1.0 and scored.watched == {"rewards/python/failures": 1.0}
    assert "problem p1: ZeroDivisionError" in caplog.text


ONE_ODD = {"none": "None", "text": "'good'", "nan": "float('nan')", "list": "[1.0]", "infinite": "float('inf')"}


@pytest.mark.parametrize("odd", ONE_ODD)
def test_one_completion_without_a_number_costs_no_other_its_value(tmp_path: Path, odd: str) -> None:
    code = f"def reward(completions, ids): return [{ONE_ODD[odd]} if c == '8' else 2.0 for c in completions]"
    scored = score(make_resources(), [own(tmp_path, code, limits=Limits(value=-3.0, retries=0))], rollouts())
    assert scored.rewards.tolist() == [2.0, -3.0, 2.0, 2.0]
    assert scored.watched == {"rewards/python/failures": 1.0}


def test_a_function_may_abstain_from_every_completion_that_it_is_tried_on(tmp_path: Path) -> None:
    own(tmp_path, "def reward(completions): return [None for c in completions]").try_out()
    own(tmp_path, "def compute_score(solution_str): return None", function="compute_score").try_out()


@pytest.mark.parametrize("leaves", ["sys.exit(0)", "os._exit(0)", "raise KeyboardInterrupt", "raise GeneratorExit"])
def test_a_call_in_which_the_file_leaves_is_a_failed_call_that_names_it(
    tmp_path: Path, leaves: str, caplog: pytest.LogCaptureFixture
) -> None:
    code = f"import os, sys\ndef reward(completions):\n    {leaves}"
    scored = score(make_resources(), [own(tmp_path, code, limits=Limits(value=-3.0))], rollouts())
    assert scored.rewards.tolist() == [-3.0] * 4
    assert f"4 of 4 completions count -3 instead of a value (UserCodeError: {tmp_path}/my_reward.py, line 3: " in (
        caplog.text
    )


def test_a_function_of_one_completion_that_leaves_costs_no_other_its_value(tmp_path: Path) -> None:
    code = "import sys\ndef compute_score(solution_str): return 1.0 if solution_str else sys.exit(0)"
    reward = own(tmp_path, code, function="compute_score", limits=Limits(value=-3.0, retries=0))
    assert score(make_resources(), [reward], rollouts()).rewards.tolist() == [1.0, 1.0, 1.0, -3.0]


def test_what_a_file_sets_when_it_is_imported_holds_in_its_calls_and_not_for_the_run(tmp_path: Path) -> None:
    code = (
        "import os, torch\nos.environ['MINE'] = 'x'\nos.chdir('/')\ntorch.set_default_dtype(torch.float64)\n"
        "def reward(completions):\n"
        "    assert (os.environ['MINE'], os.getcwd(), torch.get_default_dtype()) == ('x', '/', torch.float64)\n"
        "    return [1.0] * len(completions)"
    )
    reward, here = own(tmp_path, code, limits=Limits(retries=0)), os.getcwd()
    reward.try_out()
    for _ in range(2):
        assert score(make_resources(), [reward], rollouts()).watched == {}
        assert ("MINE" in os.environ, os.getcwd(), torch.get_default_dtype()) == (False, here, torch.float32)


def test_a_file_is_imported_without_the_words_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["rewardflow", "run", "x.yaml", "--epochs", "7"])
    code = (
        "import argparse\nargs = argparse.ArgumentParser()\nargs.add_argument('--epochs', type=int, default=1)\n"
        "known, _ = args.parse_known_args()\ndef reward(completions): return [float(known.epochs)] * len(completions)"
    )
    assert own(tmp_path, code)(make_resources(), rollouts()).tolist() == [1.0] * 4
    assert sys.argv == ["rewardflow", "run", "x.yaml", "--epochs", "7"]


def test_a_smoke_run_keeps_the_file(tmp_path: Path) -> None:
    from models.recipes.smoke import made_small

    (tmp_path / "my_reward.py").write_text(TRL)
    small = load_recipe(recipe_in(tmp_path), made_small(recipe_in(tmp_path), []))
    assert isinstance(small.rewards[0], PythonReward) and small.rewards[0].given
