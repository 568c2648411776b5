"""Plans for small models: every damage is undone by its repair, and the reward depends on the result alone."""

from random import Random

import pytest

from models.agents.environments.pipeline import Pipeline
from models.answers.likeness import likeness
from models.answers.repairs import DAMAGES, REPAIRS
from models.method.problem import Problem
from models.task_sets.plans import PlansSettings


@pytest.mark.parametrize("damage, repair", zip(DAMAGES, REPAIRS, strict=True))
def test_every_damage_is_undone_by_its_repair(damage: str, repair: str) -> None:
    for word in ("velmo", "zaz", "abcyz"):
        assert REPAIRS[repair](DAMAGES[damage](word)) == word != DAMAGES[damage](word) or word == word[::-1]


def played(prompt: str, answer: str, plan: str) -> tuple[float, bool]:
    opened = Pipeline().open(Problem("p", prompt, answer))
    opened.reset(0)
    _, reward, terminated, _, info = opened.step(plan)
    assert terminated
    return reward, bool(info["solved"])


def test_the_reward_is_the_metric_of_the_result_and_not_of_the_plan() -> None:
    prompt, answer = "shifted then dotted: w.f.m.n.p", "velmo"
    assert played(prompt, answer, "undot shift") == (1.0, True)
    assert played(prompt, answer, "undot turn turn shift") == (1.0, True)  # another plan with the same result
    reward, solved = played(prompt, answer, "shift")
    assert (reward, solved) == (likeness("v.e.l.m.o", answer, "chrf"), False) and 0 < reward < 1
    assert played(prompt, answer, "undot magic") == (0.0, False)
    assert played(prompt, answer, "") == played(prompt, answer, "turn " * 9) == (0.0, False)


def test_every_sound_demonstration_solves_its_problem() -> None:
    settings = PlansSettings(problems={}, words=50, damages=(1, 3), same_order=0.0, short=0.0)
    random = Random(1)
    for task in (settings.draw(random) for _ in range(100)):
        flaw, (plan,) = settings.demonstrate(random, task)
        assert flaw == "none" and played(task.prompt, task.answer, plan) == (1.0, True)
