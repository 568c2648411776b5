"""Sparse updates and subnetworks: values by hand, training under a mask, and masks from chance or from a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.schedule import ScheduleSettings
from models.parts.objective.exponential_likelihood import ExponentialLikelihood
from models.policies.folder import save_model_folder
from models.policies.update_sparsity import (
    SubnetworkSettings,
    changed_share,
    changed_share_of_files,
    changed_weights,
    learn_only,
    masks_of,
    update_of,
)
from tests.support.tiny_models import SEQUENCES, each_token, plain_log_probs, scored, tiny_policy, word_tokenizer


def matrix(*rows: Sequence[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


BEFORE = {"square": matrix([1.0, 2.0], [3.0, 4.0]), "vector": torch.ones(4, dtype=torch.float64)}


def test_an_update_by_hand() -> None:
    after = {"square": matrix([1.0, 2.5], [3.0, 5.0]), "vector": torch.tensor([1.0, 1.0, 1.0, 2.0]).double()}
    update = update_of(BEFORE, after)
    assert (update["square"].changed, update["square"].share, update["square"].rank) == (2, 0.5, 1)
    assert (update["vector"].changed, update["vector"].rank, update["vector"].full_rank) == (1, None, None)
    assert update["square"].full_rank == 2 and changed_share(update) == 3 / 8


def test_few_changes_can_have_full_rank() -> None:
    before, after = torch.zeros(5, 5, dtype=torch.float64), torch.eye(5, dtype=torch.float64)
    update = update_of({"a": before}, {"a": after})["a"]
    assert update.share == 0.2 and update.rank == update.full_rank == 5


def test_a_change_within_the_tolerance_is_none_and_without_one_every_change_counts() -> None:
    after = {**BEFORE, "square": BEFORE["square"] * torch.tensor([1.0 + 1e-4, 1.01], dtype=torch.float64)}
    assert changed_weights(BEFORE, after, 1e-3)["square"].tolist() == [[False, True], [False, True]]
    assert (
        changed_weights(BEFORE, after, 0.0)["square"].all() and not changed_weights(BEFORE, after, 0.1)["square"].any()
    )


def test_a_policy_that_has_not_learned_has_changed_nowhere() -> None:
    state = tiny_policy().state_dict()
    update = update_of(state, tiny_policy().state_dict(), 0.0)
    assert changed_share(update) == 0.0 and all(rollout.rank in (0, None) for rollout in update.values())


def test_states_of_different_policies_are_refused() -> None:
    with pytest.raises(ValueError, match=r"differ in \['vector'\]"):
        changed_weights(BEFORE, {"square": BEFORE["square"]}, 0.0)


def trained(masks: Mapping[str, Tensor] | None, steps: int = 4) -> Any:
    """Return a policy after some optimiser steps of likelihood with AdamW."""
    policy = tiny_policy()
    if masks is not None:
        learn_only(policy, masks)
    step = OptimiserSettings(learning_rate=1e-2, warmup_steps=0)
    learner = Learner(policy, build_optimiser(policy, step), None, None, None, MODEL_DISTRIBUTION)
    settings = ScheduleSettings(rounds=1, epochs=steps, optimiser=step)
    chosen = scored([0.0] * 5, [2, 3], sequences=SEQUENCES)
    fit_round(learner, ExponentialLikelihood(), chosen, each_token(chosen.rewards, chosen), settings, 8)
    return policy


def by_chance(policy: nn.Module, keep: float) -> dict[str, Tensor]:
    return masks_of(policy, SubnetworkSettings(share=keep))


def test_a_mask_of_ones_is_full_training_to_the_bit() -> None:
    full, masked = trained(None).state_dict(), trained(by_chance(tiny_policy(), 1.0)).state_dict()
    assert all(torch.equal(full[name], masked[name]) for name in full)


def test_what_is_masked_keeps_its_value_to_the_bit_and_the_rest_learns() -> None:
    masks = by_chance(tiny_policy(), 0.2)
    before, policy = tiny_policy(), trained(masks)
    changed = changed_weights(dict(before.named_parameters()), dict(policy.named_parameters()), 0.0)
    assert not any((changed[name].cpu() & ~mask).any() for name, mask in masks.items())
    reached = sum(int(change.sum()) for change in changed.values()) / sum(int(mask.sum()) for mask in masks.values())
    assert reached > 0.5  # the embeddings of tokens that never occur get no gradient
    likelihood = [
        sum(float(row.sum().detach()) for row in plain_log_probs(change, SEQUENCES)) for change in (before, policy)
    ]
    assert likelihood[1] > likelihood[0]


def test_removed_handles_let_everything_learn_again() -> None:
    policy = tiny_policy()
    for handle in learn_only(policy, by_chance(policy, 0.0)):
        handle.remove()
    (-plain_log_probs(policy, SEQUENCES)[0].sum()).backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in policy.parameters())


def test_a_mask_without_a_parameter_is_refused() -> None:
    with pytest.raises(ValueError, match="no parameter is called nowhere"):
        learn_only(tiny_policy(), {"nowhere": torch.ones(1, dtype=torch.bool)})


def test_between_two_folders_the_share_is_that_between_the_two_models(tmp_path: Path) -> None:
    model, tokenizer = tiny_policy(torch.float32), word_tokenizer()
    before = {name: value.clone() for name, value in model.named_parameters()}
    save_model_folder(model, tokenizer, tmp_path / "before")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[:5] += 1.0
    save_model_folder(model, tokenizer, tmp_path / "after")
    expected = changed_share(update_of(before, dict(model.named_parameters())))
    assert changed_share_of_files(tmp_path / "before", tmp_path / "after") == pytest.approx(expected) != 0
    assert changed_share_of_files(tmp_path / "after", tmp_path / "after") == 0.0


def test_masks_drawn_by_chance_have_the_wanted_share_in_every_matrix_and_are_drawn_alike_again() -> None:
    model = tiny_policy(torch.float32)
    masks = masks_of(model, SubnetworkSettings(share=0.3, seed=4))
    again = masks_of(model, SubnetworkSettings(share=0.3, seed=4))
    assert masks.keys() == dict(model.named_parameters()).keys()
    assert all(torch.equal(mask, again[name]) for name, mask in masks.items())
    shares = [float(mask.float().mean()) for mask in masks.values() if mask.numel() > 1000]
    assert min(shares) > 0.25 and max(shares) < 0.35
    assert all(mask.all() for mask in masks_of(model, SubnetworkSettings(share=1.0)).values())


def test_masks_from_a_file_are_those_of_the_file_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    model, file = tiny_policy(torch.float32), tmp_path / "masks.safetensors"
    mask = torch.zeros(64, 64, dtype=torch.bool)
    save_file({"model.layers.0.mlp.up_proj.weight": mask}, file)
    assert masks_of(model, SubnetworkSettings(masks=str(file))).keys() == {"model.layers.0.mlp.up_proj.weight"}
    save_file({"model.layers.7.mlp.up_proj.weight": mask}, file)
    with pytest.raises(UserError, match=r"layers\.7\.mlp\.up_proj\.weight is not a parameter of such a shape"):
        masks_of(model, SubnetworkSettings(masks=str(file)))
    with pytest.raises(UserError, match="cannot be read"):
        masks_of(model, SubnetworkSettings(masks=str(tmp_path / "none.safetensors")))
