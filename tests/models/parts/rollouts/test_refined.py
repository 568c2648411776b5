"""Refinements by feedback: their prompts and groups, the answers that are refined, and long feedback."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.answers.exact import solves
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.supervised import SupervisedSettings
from models.method.attempt import Attempt
from models.method.feedback import Feedback, Remark
from models.method.rollout import Rollout
from models.parts.feedback.verdict import VerdictFeedback
from models.parts.rollouts.refined import Refined
from models.parts.select.best_of_n import BestOfN
from models.recipes.load import load_recipe
from models.text.prompt_form import in_context
from tests.support.scripted_engine import Scripted
from tests.support.tiny_loops import END, PROBLEMS, save_start
from tests.support.tiny_models import contents, scored
from tests.support.tiny_resources import CODEC, make_resources

CONTEXT = "{prompt} {shown} ; {prompt}"
SETTINGS: dict[str, Any] = {"prompts": 6, "group_size": 2, "max_tokens": 8, "context": CONTEXT}


VERDICT = VerdictFeedback(right="= {answer}", wrong="+ {answer}")


def draw(source: Refined) -> tuple[list[Rollout], Scripted]:
    engine: Any = Scripted("#### 8", "#### 7")
    return source(make_resources(engine), PROBLEMS[:2], 0), engine


def test_a_refinement_is_drawn_behind_answer_and_feedback_and_stands_under_the_plain_prompt() -> None:
    made, engine = draw(Refined(feedback=VERDICT, **SETTINGS))
    first = PROBLEMS[0].prompt
    assert engine.asked[1][:2] == [f"{first} #### 8 + 7 ; {first}", f"{first} #### 7 = 7 ; {first}"]
    refined = [rollout for rollout in made if rollout.source.origin == "refined"]
    assert [rollout.problem for rollout in refined] == [PROBLEMS[0]] * 2 + [PROBLEMS[1]] * 2
    assert all(rollout.behaviour_log_probs is None for rollout in refined)
    assert [rollout.source.feedback for rollout in refined] == ["+ 7", "= 7"] * 2


def test_samples_and_refinements_of_a_prompt_are_one_group_side_by_side() -> None:
    source = Refined(feedback=VERDICT, refinements=3, **SETTINGS)
    made, _ = draw(source)
    wanted = ["policy"] * 2 + ["refined"] * 6
    assert [(each.group, each.source.origin) for each in made] == [(0, each) for each in wanted] + [
        (1, each) for each in wanted
    ]
    assert source.largest_group() == 8


def test_only_wrong_answers_are_refined_where_that_is_asked() -> None:
    made, _ = draw(Refined(feedback=VERDICT, only_wrong=True, **SETTINGS))
    assert [(each.source.origin, solves(each)) for each in made[:3]] == [
        ("policy", False),
        ("policy", True),
        ("refined", True),
    ]
    assert len(made) == 6


@dataclass(frozen=True, kw_only=True)
class Endless(Feedback):
    """Feedback that is very long and always the same."""

    name = "endless"

    def __call__(self, attempts: Sequence[Attempt]) -> list[Remark]:
        return [Remark("7 " * 5_000) for _ in attempts]


def test_long_feedback_is_cut_and_no_context_is_longer_than_was_said_before() -> None:
    source = Refined(feedback=Endless(), feedback_tokens=3, **SETTINGS)
    made, engine = draw(source)
    extra = source.extra_tokens(CODEC, PROBLEMS[:2])
    for number, said in enumerate(engine.asked[1]):
        (ids,) = CODEC.prompts([said])
        assert len(ids) <= len(PROBLEMS[number // 2].tokens) + extra[number // 2]
    assert made[-1].source.feedback.split() == ["7"] * 3


def test_places_are_filled_once_whatever_the_answer_says() -> None:
    assert in_context("{prompt} | {shown} | {prompt}", "p", "{prompt} {shown}", "c") == "p | {prompt} {shown} c | p"


def test_with_a_real_engine_the_same_seed_and_round_give_the_same_completions(tmp_path: Path) -> None:
    resources = make_resources(
        TransformersEngine(save_start(tmp_path / "p"), EngineSettings(precision="float32"), end=END)
    )
    source = Refined(feedback=VERDICT, **SETTINGS)
    first = source(resources, PROBLEMS, 3)
    assert contents(source(resources, PROBLEMS, 3)) == contents(first) != contents(source(resources, PROBLEMS, 4))
    assert sum(rollout.source.origin == "refined" for rollout in first) == 2 * len(PROBLEMS)


def test_the_best_refinement_joins_all_samples_or_stands_alone() -> None:
    given = scored(torch.tensor([0.9, 0.1, 0.2, 0.5, 0.0, 0.0]), [4, 2])
    origins: tuple[Any, ...] = ("policy", "policy", "refined", "refined", "policy", "policy")
    given = replace(
        given,
        rollouts=[replace(r, source=replace(r.source, origin=o)) for r, o in zip(given.rollouts, origins, strict=True)],
    )
    assert BestOfN(origin="refined", others="kept")(given).tolist() == [0, 1, 3, 4, 5]
    assert BestOfN(origin="refined")(given).tolist() == [3]
    assert BestOfN(origin="refined", others="kept", least=0.6)(given).tolist() == [0, 1, 4, 5]


def test_a_warm_start_that_tells_feedback_needs_somebody_who_gives_it() -> None:
    telling = ('warm_start.context="{prompt} {shown}"', "warm_start.shows=feedback")
    assert load_recipe("critique_grpo").warm_start == SupervisedSettings(
        **{
            **vars(load_recipe("arithmetic_long").warm_start),
            "context": "{prompt} {shown} . {prompt}",
            "shows": "feedback",
        }
    )
    with pytest.raises(Exception, match=r"rollouts sample has no adviser; set rollouts\.name to improved or refined"):
        load_recipe("arithmetic", telling)
