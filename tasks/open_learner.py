"""What the loop needs opened: the learner with its reference and companions, the engine, the reward model's scorer."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models.engine.engine import Engine, EngineSettings
from models.learner.fused_log_probs import Distribution
from models.learner.optimiser import build_optimiser
from models.learner.packing import Sequences
from models.loop.judge import Role
from models.loop.learner import Learner
from models.loop.method import companions_of, reference_is_read_alone
from models.loop.rollout import Problem
from models.loop.schedule import ScheduleSettings
from models.loop.slots import Advantage, Reference, Reward, Rollouts
from models.policy.build import PolicySettings, on_device, with_adapter
from models.policy.rounded import round_once
from models.policy.served_teacher import open_served
from models.policy.teacher import TeacherSettings, open_frozen
from models.policy.update_sparsity import learn_only, masks_of
from models.recipe.teachers import KEYS
from models.reward_model.model import load_reward_model
from models.reward_model.scoring import score_all
from models.text.encoding import Codec
from tasks.precision import learner_autocast
from tasks.prompts import PromptSections, longest_in_training
from tasks.sections import Sections, of
from tasks.shared_engine import lent_engine
from tasks.step import StepResult

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class LearnerSections(Sections):
    """What a learner is built from, beside the policy's weights."""

    seed: int
    policy: PolicySettings
    rollouts: Rollouts
    rewards: list[Reward]
    advantage: Advantage
    reference: Reference


class EngineSections(PromptSections):
    """What the engine of a training is opened with."""

    engine: EngineSettings


class ScorerSections(Sections):
    """How the reward model reads."""

    policy: PolicySettings
    score_budget: int | None = of("reward_model.fit.token_budget")


def build_learner(
    policy: PreTrainedModel, recipe: LearnerSections, settings: ScheduleSettings, home: Path, run_id: str | None
) -> Learner:
    """The policy with its optimiser, and the reference and the companions that the recipe asks for."""
    reference: PreTrainedModel | None = None
    adapter_off: Any = None
    torch.manual_seed(recipe.seed)  # heads of companions begin at random
    companions = companions_of((*recipe.rewards, recipe.advantage), policy)
    if recipe.reference.kept and (recipe.reference.moves or recipe.policy.lora is None):
        # before there is an adapter: a reference that moves holds whole weights, the adapter merged in
        reference = copy.deepcopy(policy).requires_grad_(False)
    if recipe.policy.lora is not None:
        policy = with_adapter(policy, recipe.policy.lora, recipe.seed)
    if recipe.reference.kept and reference is None:
        adapter_off = policy.disable_adapter
    if recipe.policy.subnetwork is not None:
        learn_only(policy, masks_of(policy, recipe.policy.subnetwork))
    autocast = learner_autocast(recipe.policy.precision, policy, home, run_id)
    if reference is not None and autocast is not None and reference_is_read_alone(recipe.reference, recipe.rollouts):
        round_once(reference, autocast)
    drawn = recipe.rollouts.sampling
    distribution = Distribution(temperature=drawn.temperature or 1.0, top_p=drawn.top_p, top_k=drawn.top_k)
    return Learner(
        policy,
        build_optimiser(policy, settings.optimiser),
        reference,
        adapter_off,
        autocast,
        distribution,
        mask_top_p=recipe.rollouts.mask_top_p,
        companions=companions,
        reference_moves=recipe.reference.moves,
    )


def open_teachers(
    learner: Learner,
    tokenizer: PreTrainedTokenizerBase,
    folders: Mapping[Role, Path],
    served: TeacherSettings | None = None,
    *,
    trust_remote_code: bool = False,
) -> None:
    """Give the learner the frozen models that its recipe learns from, in the precision that it learns in.

    Args:
        learner: of the policy that is distilled.
        tokenizer: the policy's.
        folders: of models that lie on this machine.
        served: the recipe's teacher, where it may stand behind an address.
        trust_remote_code: see `models.policy.build.PolicySettings`.

    Raises:
        UserError: one of `folders` holds no model, or one with another vocabulary than the policy; the server does not
            answer as it should.
    """
    dtype = learner.autocast or torch.float32
    learner.teachers = {
        role: open_frozen(folder, tokenizer, KEYS[role], dtype=dtype, trust_remote_code=trust_remote_code)
        for role, folder in folders.items()
    }
    if served is not None and served.address is not None:
        learner.served_teacher = open_served(
            served.address, served.model, lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
        )


def engine_for(
    folder: Path, recipe: EngineSections, codec: Codec, autocast: torch.dtype | None, problems: Sequence[Problem]
) -> AbstractContextManager[Engine]:
    """The recipe's engine on the weights of `folder`, in the learner's precision unless the recipe names another.

    It holds the longest sequence that the recipe's source draws for `problems`. On a GPU it takes its share
    (`engine.memory_share`) beside a learner that is there already, and keeps it for the evaluations after: these need
    the room of the engine and less than the learner leaves.
    """
    return lent_engine(
        folder,
        recipe.engine,
        longest=longest_in_training(problems, codec, recipe),
        end=codec.ends,
        dtype=autocast or torch.float32,
        trust_remote_code=recipe.policy.trust_remote_code,
    )


def reward_scorer(rewarded: StepResult | None, recipe: ScorerSections, home: Path, codec: Codec) -> Any:
    """A function that scores whole sequences with the run's reward model; None where there is none.

    Whichever end token a completion has, the score is read at the one that the reward model was fitted with.
    """
    if rewarded is None:
        return None
    budget = recipe.score_budget
    assert budget is not None, "a reward model was fitted"
    trusted = recipe.policy.trust_remote_code
    model = on_device(load_reward_model(Path(rewarded.folder) / "reward_model", trust_remote_code=trusted))
    autocast = learner_autocast(recipe.policy.precision, model, home, None)

    def score(sequences: Sequences) -> Tensor:
        alike = Sequences(sequences.prompts, codec.ended_alike(sequences.completions))
        return score_all(model, alike, token_budget=budget, autocast=autocast)

    return score
