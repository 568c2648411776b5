"""Explanations for prompts at which every sample fails: how they are sampled, and which of them are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from models.engines.engine import EngineSettings, Generated, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rollouts.explained import Explained
from models.parts.rollouts.sample import Sample
from tests.support.tiny_loops import END, PROBLEMS, save_start
from tests.support.tiny_models import contents
from tests.support.tiny_resources import CODEC, make_resources

RIGHT, WRONG = "4 + 3 #### 7", "#### 8"
SETTINGS: dict[str, Any] = {"prompts": 6, "group_size": 3, "max_tokens": 8, "hint": "{prompt} #### {answer} ;"}


class Scripted:
    """An engine that returns the given texts of each prompt in turn, and records its calls."""

    dtype = torch.float32

    def __init__(
        self, answers: Mapping[tuple[int, ...], tuple[str, ...]], cut: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        self.answers, self.cut = answers, cut
        self.asked: list[tuple[Sequence[tuple[int, ...]], int, int]] = []

    def generate(self, prompts: Sequence[tuple[int, ...]], sampling: Sampling, seed: int) -> list[list[Generated]]:
        self.asked.append((prompts, sampling.samples, seed))
        made = []
        for prompt in prompts:
            texts = self.answers[tuple(prompt)]
            ids = CODEC.completions([texts[index % len(texts)] for index in range(sampling.samples)])
            ended = tuple(prompt) not in self.cut
            made.append([Generated(tuple(row), torch.full((len(row),), -1.0), ended) for row in ids])
        return made


def hinted(problem: Problem) -> tuple[int, ...]:
    return tuple(CODEC.prompts([f"{problem.prompt} #### 7 ;"])[0])


def resources_of(
    solved: Sequence[Problem], failed: Sequence[Problem], explanations: tuple[str, ...] = (RIGHT, WRONG)
) -> RunResources:
    """Return resources whose engine solves each of `solved` once in three samples and never solves any of `failed`.

    For a prompt with a hint, the engine returns `explanations`.
    """
    answers: dict[tuple[int, ...], tuple[str, ...]] = {problem.tokens: (WRONG, RIGHT, WRONG) for problem in solved}
    answers |= {problem.tokens: (WRONG,) for problem in failed}
    answers |= {hinted(problem): explanations for problem in (*solved, *failed)}
    return make_resources(cast(Any, Scripted(answers)))


def scripted(resources: RunResources) -> Scripted:
    return cast(Scripted, resources.engine)


def test_only_groups_without_any_success_get_explanations() -> None:
    solved, failed = PROBLEMS[:2], PROBLEMS[2:4]
    rollouts = Explained(**SETTINGS)(resources_of(solved, failed), [solved[0], failed[0], solved[1], failed[1]], 0)
    origins = [(rollout.group, rollout.source.origin) for rollout in rollouts]
    policy, explained = "policy", "explained"
    assert origins == [
        *[(0, policy)] * 3,
        *[(1, policy)] * 3,
        (1, explained),
        *[(2, policy)] * 3,
        *[(3, policy)] * 3,
        (3, explained),
    ]


def test_a_sample_that_was_cut_solves_nothing_and_a_cut_explanation_explains_nothing() -> None:
    solved, asked = resources_of(PROBLEMS[:1], []), PROBLEMS[:1]
    for cut, origins in (((), 3), ((asked[0].tokens,), 4), ((asked[0].tokens, hinted(asked[0])), 3)):
        scripted(solved).cut = cut
        assert len(Explained(**SETTINGS)(solved, asked, 0)) == origins


def test_an_explanation_is_drawn_with_the_answer_and_stands_under_the_prompt_without_it() -> None:
    resources = resources_of([], PROBLEMS[:1])
    rollouts = Explained(**SETTINGS)(resources, PROBLEMS[:1], 0)
    assert scripted(resources).asked[1][:2] == ([hinted(PROBLEMS[0])], 2)
    assert rollouts[-1].problem == PROBLEMS[0] and rollouts[-1].text == RIGHT
    assert rollouts[-1].behaviour_log_probs is None and rollouts[0].behaviour_log_probs is not None


def test_an_explanation_that_ends_elsewhere_is_left_out_unless_all_are_wanted() -> None:
    resources = resources_of([], PROBLEMS[:1])
    assert [rollout.text for rollout in Explained(**SETTINGS)(resources, PROBLEMS[:1], 0)] == [WRONG] * 3 + [RIGHT]
    everything = Explained(only_right=False, **SETTINGS)(resources, PROBLEMS[:1], 0)
    assert [rollout.text for rollout in everything] == [WRONG] * 3 + [RIGHT, WRONG]


def test_where_every_prompt_has_a_success_it_is_plain_sampling_and_the_engine_is_asked_once() -> None:
    resources = resources_of(PROBLEMS, [])
    actual = Explained(**SETTINGS)(resources, PROBLEMS, 4)
    plain = Sample(prompts=6, group_size=3, max_tokens=8)(resources_of(PROBLEMS, []), PROBLEMS, 4)
    assert contents(actual) == contents(plain) and len(scripted(resources).asked) == 1


def test_a_problem_whose_answer_nobody_knows_is_not_explained() -> None:
    unknown = replace(PROBLEMS[0], answer="")
    resources = resources_of([], [unknown])
    assert len(Explained(**SETTINGS)(resources, [unknown], 0)) == 3 and len(scripted(resources).asked) == 1


@pytest.mark.parametrize("only_right", [True, False])
def test_with_a_real_engine_the_same_seed_and_round_give_the_same_completions(tmp_path: Path, only_right: bool) -> None:
    resources = make_resources(
        TransformersEngine(save_start(tmp_path / "p"), EngineSettings(precision="float32"), end=END)
    )
    source = Explained(only_right=only_right, **SETTINGS)
    first = source(resources, PROBLEMS, 3)
    assert contents(source(resources, PROBLEMS, 3)) == contents(first) != contents(source(resources, PROBLEMS, 4))
