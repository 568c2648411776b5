"""Branches at uncertain tokens: their beginnings, and the same log-probs and gradients with and without sharing."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.all_completions import all_log_probs
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.log_probs import completion_log_probs
from models.learner.packing import packed_row
from models.method.learner import Learner
from models.method.resources import RunResources
from models.method.rollout import Rollout, sequences_of
from models.parts.rollouts.branched import Branched, critical_places
from models.recipes.load import load_recipe
from tests.support.tiny_loops import END, PROBLEMS, save_start
from tests.support.tiny_models import contents, gradients, plain_log_probs, tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

SETTINGS: dict[str, Any] = {"prompts": 3, "group_size": 6, "branches": 2, "critical": 3, "max_tokens": 8}


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> RunResources:
    start = save_start(tmp_path_factory.mktemp("start") / "policy")
    policy = tiny_policy(torch.float32, spread=3.0).requires_grad_(False)
    learner = Learner(policy, torch.optim.SGD(policy.parameters()), None, None, None, MODEL_DISTRIBUTION)
    return make_resources(TransformersEngine(start, EngineSettings(precision="float32"), end=END), learner=learner)


@pytest.fixture(scope="module")
def drawn(resources: RunResources) -> list[Rollout]:
    return Branched(**SETTINGS)(resources, PROBLEMS[:3], 1)


def families(rollouts: list[Rollout]) -> list[tuple[Rollout, list[Rollout]]]:
    """Return each original with its branches."""
    return [(rollouts[place], rollouts[place + 1 : place + 3]) for place in range(0, len(rollouts), 3)]


def test_a_group_holds_originals_with_branches_that_continue_their_beginning(drawn: list[Rollout]) -> None:
    assert [rollout.group for rollout in drawn] == [0] * 6 + [1] * 6 + [2] * 6
    for original, branches in families(drawn):
        assert original.source.begun == 0 and original.problem.tokens == PROBLEMS[original.group].tokens
        for branch in branches:
            begun = branch.source.begun
            prefix = original.completion[:begun]
            assert branch.problem.tokens == (*original.problem.tokens, *prefix) and branch.episode.history == begun
            assert branch.text == CODEC.text([[*prefix, *branch.completion]])[0]
            assert branch.trained is None and 1 <= len(branch.completion) <= 8 - begun
    assert len({branch.source.begun for _, branches in families(drawn) for branch in branches}) > 2


def test_a_branch_begins_at_a_token_of_highest_entropy(resources: RunResources, drawn: list[Rollout]) -> None:
    originals = [original for original, _ in families(drawn)]
    entropies = resources.readings.entropy(originals)
    for (_, branches), entropy in zip(families(drawn), entropies, strict=True):
        highest = entropy[1:].sort(descending=True).values[:3]
        assert all(float(entropy[branch.source.begun]) >= float(highest[-1]) for branch in branches)


def test_places_by_hand_and_every_critical_token_equally_often() -> None:
    row = torch.tensor([0.5, 2.0, 0.1, 3.0, 2.5])
    counts = torch.bincount(torch.tensor(critical_places([row] * 3000, 3, 5)), minlength=5)
    assert counts[[0, 2]].tolist() == [0, 0] and (counts[[1, 3, 4]] - 1000).abs().max() < 130
    assert critical_places([row], 1, 9) == [3]
    assert set(critical_places([row[:3]] * 50, 20, 1)) == {1, 2}
    assert 0 not in critical_places([torch.tensor([9.0, 1.0, 2.0])] * 50, 2, 0), "the first token is no branch"
    assert critical_places([row[:1]], 3, 0) == [0]
    assert critical_places([row] * 5, 3, 4) == critical_places([row] * 5, 3, 4)


def test_the_same_seed_and_round_give_the_same_completions_and_other_prompts_do_not_matter(
    resources: RunResources, drawn: list[Rollout]
) -> None:
    again = Branched(**SETTINGS)(resources, PROBLEMS[:3], 1)
    assert contents(again) == contents(drawn)
    other = Branched(**SETTINGS)(resources, PROBLEMS[:3], 2)
    assert [rollout.completion for rollout in other] != [rollout.completion for rollout in drawn]


def test_log_probs_of_the_engine_are_those_after_prompt_and_beginning(drawn: list[Rollout]) -> None:
    exact = plain_log_probs(tiny_policy(torch.float32, spread=3.0), sequences_of(drawn))
    for rollout, row in zip(drawn, exact, strict=True):
        torch.testing.assert_close(rollout.behaviour_log_probs, row.detach().cpu(), rtol=1e-4, atol=1e-4)


def test_a_beginning_is_read_once_and_nothing_changes_by_it(drawn: list[Rollout]) -> None:
    policy, sequences = tiny_policy(), sequences_of(drawn)
    assert sequences.nested
    shared, alone = packed_row(sequences), packed_row(replace(sequences, nested=False))
    wholes = {
        sequences.whole(place)[:length]
        for place in range(len(sequences))
        for length in range(1, sequences.lengths[place] + 1)
    }
    assert len(shared.ids) == len(wholes) < len(alone.ids)

    def read(nested: bool) -> tuple[Tensor, dict[str, Tensor]]:
        policy.zero_grad()
        log_probs, _ = completion_log_probs(policy, replace(sequences, nested=nested), distribution=MODEL_DISTRIBUTION)
        weights = torch.linspace(-1, 1, len(log_probs), dtype=log_probs.dtype, device=log_probs.device)
        (weights * log_probs).sum().backward()
        return log_probs.detach(), gradients(policy)

    (nested, when_shared), (plain, when_alone) = read(True), read(False)
    torch.testing.assert_close(nested, plain, atol=1e-9, rtol=1e-9)
    for name, value in when_alone.items():
        torch.testing.assert_close(when_shared[name], value, atol=1e-9, rtol=1e-7)
    by_definition = torch.cat(plain_log_probs(policy, sequences)).detach()
    of_all = torch.cat(all_log_probs(policy, sequences))
    torch.testing.assert_close(of_all.cpu(), by_definition.cpu(), atol=1e-9, rtol=1e-9)


def test_a_group_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"group_size is 6, but each original has 3 branches; set it to a multiple of 4"
    ):
        load_recipe("cure", ["rollouts.group_size=6"])
