"""Ensembles of reward models: the rules of combination by hand, and the file that describes an ensemble."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.policies.folder import save_model_folder
from models.reward_models.ensemble import (
    FILE,
    Ensemble,
    combine,
    disagreement,
    levels_of,
    member_folders,
    read_ensemble,
    write_ensemble,
)
from models.reward_models.model import reward_model_from_policy
from models.reward_models.scorer import open_scorer
from models.reward_models.scoring import score_all
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC

SCORES = torch.tensor([[1.0, -2.0, 0.5], [3.0, 0.0, 0.5], [2.0, -4.0, 0.5]], dtype=torch.float64)


def test_the_rules_by_hand() -> None:
    assert combine(SCORES, "mean").tolist() == pytest.approx([2.0, -2.0, 0.5])
    assert combine(SCORES, "worst").tolist() == [1.0, -4.0, 0.5]
    # The variances over the members, with divisor n, are 2/3, 8/3 and 0.
    assert combine(SCORES, "uncertainty", 0.3).tolist() == pytest.approx([2.0 - 0.2, -2.0 - 0.8, 0.5])


def test_without_a_penalty_uncertainty_is_the_mean_and_a_member_alone_is_itself() -> None:
    assert torch.equal(combine(SCORES, "uncertainty", 0.0), combine(SCORES, "mean"))
    for rule in ("mean", "worst", "uncertainty"):
        assert torch.equal(combine(SCORES[:1], rule, 7.0), SCORES[0])  # type: ignore[arg-type]


def test_the_worst_is_never_above_the_mean_and_the_order_of_the_members_says_nothing() -> None:
    many = torch.randn(5, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert (combine(many, "worst") <= combine(many, "mean")).all()
    turned = many[torch.tensor([3, 1, 4, 0, 2])]
    for rule in ("mean", "worst", "uncertainty"):
        assert torch.allclose(combine(many, rule, 0.5), combine(turned, rule, 0.5), atol=1e-12)  # type: ignore[arg-type]


def test_the_level_that_a_likelihood_leaves_open_says_nothing() -> None:
    shifted = SCORES + torch.tensor([[5.0], [-3.0], [0.0]], dtype=torch.float64)
    levels = levels_of([(row, row + 1) for row in SCORES]), levels_of([(row, row + 1) for row in shifted])
    for rule in ("mean", "worst", "uncertainty"):
        before, after = (
            Ensemble(rule, 0.2, level).read(scores)  # type: ignore[arg-type]
            for level, scores in zip(levels, (SCORES, shifted), strict=True)
        )
        assert torch.allclose(before, after, atol=1e-12)


def test_members_disagree_on_the_pairs_that_they_do_not_all_order_alike() -> None:
    margins = torch.tensor([[1.0, -1.0, 2.0, 0.0], [2.0, 1.0, 3.0, 0.0]])
    assert disagreement(margins) == 0.25 and disagreement(margins[:1]) == 0.0


def test_the_worst_group_is_one_for_all_completions_and_not_the_least_of_each() -> None:
    # The means are -1/6, 7/6 and -1/2, so the third member has the lowest, although its score for the first completion
    # is only the second highest.
    assert combine(SCORES, "worst_group").tolist() == SCORES[2].tolist()
    raised = SCORES + torch.tensor([[0.0], [0.0], [1.0]], dtype=torch.float64)
    assert combine(raised, "worst_group").tolist() == SCORES[0].tolist()
    assert combine(SCORES[:, :0], "worst_group").tolist() == []


def test_the_worst_group_is_never_better_served_than_another_and_its_reward_bounds_the_worst_cases() -> None:
    many = torch.randn(5, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    served = combine(many, "worst_group")
    assert float(served.mean()) == float(many.mean(1).min())
    assert (served >= combine(many, "worst")).all() and float(served.mean()) > float(combine(many, "worst").mean())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an ensemble: two reward models of one policy, and the rule by which they are combined."""
    start = tmp_path_factory.mktemp("ensemble")
    save_model_folder(tiny_policy(torch.float32), CODEC.tokenizer, start / "policy")
    members = [reward_model_from_policy(start / "policy", seed=seed, head_std=1.0) for seed in (0, 1)]

    def beside(target: Path) -> None:
        members[1].save_pretrained(member_folders(target, 2)[1])
        write_ensemble(target, Ensemble("worst", 0.0, (0.5, -0.5)))

    save_model_folder(members[0], CODEC.tokenizer, start / "judge", beside)
    return start / "judge"


def test_a_scorer_reads_all_members_by_their_rule(folder: Path) -> None:
    both = Sequences(CODEC.prompts(["1 + 2 =", "3 +"]), CODEC.completions(["3", "4 5"]))
    score = open_scorer(folder, CODEC, token_budget=64, autocast_for=lambda model: None)
    alone = [
        score_all(reward_model_from_policy(folder.parent / "policy", seed=seed, head_std=1.0), both) for seed in (0, 1)
    ]
    expected = torch.minimum(alone[0] - 0.5, alone[1] + 0.5)
    assert torch.allclose(score(both), expected, atol=1e-5)
    assert not torch.allclose(alone[0], alone[1], atol=1e-3)


def test_a_folder_without_the_file_is_a_reward_model_by_itself(tmp_path: Path) -> None:
    assert read_ensemble(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"rule": "best", "penalty": 0, "levels": [0, 0]}', "\x00\xff"])
def test_a_file_that_is_none_of_ours_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UserError, match="does not describe an ensemble") as error:
        read_ensemble(tmp_path)
    assert "\n" not in str(error.value)


def test_a_member_that_is_missing_is_named(tmp_path: Path) -> None:
    write_ensemble(tmp_path, Ensemble("mean", 0.0, (0.0, 0.0)))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="member_2 is missing"):
        read_ensemble(tmp_path)
