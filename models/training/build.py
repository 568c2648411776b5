"""Construction of a training's learner: policy, optimiser, reference, companions and teachers of a recipe.

If several ranks learn, each builds the same models and then keeps its parts of them (`models.learner.sharding`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from models.base.ranks import ALONE, Ranks
from models.learner.compiled_layers import compile_layers, should_compile
from models.learner.distribution import Distribution
from models.learner.offloaded import Offloaded
from models.learner.optimiser import build_optimiser
from models.learner.sharding import shard
from models.method.learner import Learner, Role
from models.method.schedule import ScheduleSettings
from models.method.slots import Slots, companions_of, reference_is_read_alone
from models.policies.build import PolicySettings, load_causal_model
from models.policies.rounded import round_once
from models.policies.served_teacher import open_served
from models.policies.teacher import TeacherSettings, open_frozen
from models.policies.trained_parts import set_to_learn
from models.policies.update_sparsity import learn_only, masks_of
from models.recipes.teachers import KEYS

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class LearnerSettings(Protocol):
    """Sections of a recipe that a learner is built from, in addition to the policy's weights."""

    @property
    def seed(self) -> int: ...
    @property
    def policy(self) -> PolicySettings: ...
    @property
    def slots(self) -> Slots: ...


def build_learner(
    policy: PreTrainedModel,
    recipe: LearnerSettings,
    settings: ScheduleSettings,
    autocast_for: Callable[[nn.Module], torch.dtype | None],
    ranks: Ranks = ALONE,
    frozen: Mapping[Role, Path] | None = None,
) -> Learner:
    """Build the policy with its optimiser, and the reference and the companions that the recipe needs.

    Args:
        policy: the weights that the training begins with; the same on every rank.
        recipe: the settings.
        settings: settings of the optimiser and of compilation.
        autocast_for: the autocast dtype for the policy as it learns, None for plain float32.
        ranks: those that learn together.
        frozen: folders of the frozen models on this machine, by role; a companion may start from the judge.
    """
    judge, slots = (frozen or {}).get("judge"), recipe.slots

    def open_judge() -> nn.Module:
        assert judge is not None, "only called if there is one"
        return nn.Module.to(load_causal_model(judge, torch.float32), next(policy.parameters()).device)

    reference: PreTrainedModel | None = None
    adapter_off: Any = None
    torch.manual_seed(recipe.seed)  # heads of companions begin at random
    companions = companions_of((*slots.rewards, slots.advantage), policy, None if judge is None else open_judge)
    if slots.reference.kept and (slots.reference.moves or recipe.policy.lora is None):
        # before there is an adapter: a reference that moves holds whole weights, the adapter merged in
        reference = copy.deepcopy(policy).requires_grad_(False)
    policy = set_to_learn(policy, recipe.policy.lora, recipe.policy.train, recipe.seed)
    if slots.reference.kept and reference is None:
        adapter_off = policy.disable_adapter
    masks = {} if recipe.policy.subnetwork is None else masks_of(policy, recipe.policy.subnetwork)
    autocast = autocast_for(policy)
    if (
        reference is not None
        and autocast is not None
        and ranks.count == 1  # parts of one layer are put together in one dtype
        and reference_is_read_alone(slots.reference, slots.rollouts)
    ):
        round_once(reference, autocast)
    optimiser = build_optimiser(policy, settings.optimiser)
    shard(policy, ranks, optimiser)
    learn_only(policy, masks)
    if should_compile(settings.compile, policy):
        compile_layers(policy)
    if reference is not None:
        shard(reference, ranks)
    for companion in companions.values():
        shard(companion.model, ranks, companion.optimiser)
    offloaded = None
    if reference is not None and slots.reference.offload:
        offloaded = Offloaded(reference, next(policy.parameters()).device)
    drawn = slots.rollouts.sampling
    distribution = Distribution(temperature=drawn.temperature or 1.0, top_p=drawn.top_p, top_k=drawn.top_k)
    return Learner(
        policy,
        optimiser,
        reference,
        adapter_off,
        autocast,
        distribution,
        mask_top_p=slots.rollouts.mask_top_p,
        companions=companions,
        reference_moves=slots.reference.moves,
        offloaded=offloaded,
    )


def open_teachers(
    learner: Learner,
    tokenizer: PreTrainedTokenizerBase,
    folders: Mapping[Role, Path],
    served: TeacherSettings | None = None,
    *,
    trust_remote_code: bool = False,
) -> None:
    """Load the frozen models that the policy is distilled from into the learner, in the learner's precision.

    Args:
        learner: learner of the policy that is distilled.
        tokenizer: the policy's.
        folders: folders of models on this machine; that of a judge, which the learner does not read, is skipped.
        served: the recipe's teacher, which may be at an address.
        trust_remote_code: see `models.policies.build.PolicySettings`.

    Raises:
        UserError: one of `folders` holds no model, or one with another vocabulary than the policy; the server does not
            answer as it should.
    """
    dtype = learner.autocast or torch.float32
    learner.teachers = {
        role: open_frozen(folder, tokenizer, KEYS[role], dtype=dtype, trust_remote_code=trust_remote_code)
        for role, folder in folders.items()
        if role != "judge"
    }
    for teacher in learner.teachers.values():
        shard(teacher, learner.ranks)
    if served is not None and served.address is not None:
        learner.served_teacher = open_served(
            served.address, served.model, lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
        )
