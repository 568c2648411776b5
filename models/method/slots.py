"""The slots of the loop: the methods that a part of each must define, and the traits that it may declare.

A part is a class derived from the class of its slot and registered by `@part` (models.method.registry). Its traits are
declared here with their default values; a trait that depends on a setting is a property. `models.recipes.combinations`
compares the traits of a recipe's parts with one another, so that no method is named there. A trait that is not declared
here is refused at import. No part logs, none knows the loop.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from torch import Tensor, nn

from models.base.bounds import Number
from models.engines.engine import Sampling
from models.method.environment import EpisodeSettings
from models.method.feedback import Feedback
from models.method.learner import Learner
from models.method.reward_limits import AS_USUAL, Limits
from models.method.rollout import Extra, Problem, Reads, Rollout, Scored, TokenBatch, sum_of_tokens
from models.method.round_tokens import RoundTokens
from models.method.signal import Signal
from models.method.slot_part import SlotPart
from models.method.teacher_roles import Divergence
from models.method.verifying import Verifying
from models.method.world import World
from models.text.encoding import Codec

Level = Literal["token", "completion", "pair", "group"]
"""Unit of an objective's loss: tokens, completions, pairs of completions of the same prompt, or groups."""


class Rollouts(SlotPart):
    """Source of completions."""

    slot = "rollouts"
    prompts: int
    """Prompts of one round. A setting."""
    max_tokens: int
    """Longest completion, in tokens. A setting."""

    @property
    def draws(self) -> bool:
        """Whether an engine samples; it is started for no others."""
        return True

    @property
    def reads_models(self) -> bool:
        """Whether it reads the learner's models in addition to an engine: it cannot work ahead of the learner."""
        return False

    @property
    def in_flight(self) -> bool:
        """Whether a completion is only `sampling` of its prompt, so that it can be trained on when it ends."""
        return False

    @property
    def off_policy(self) -> bool:
        """Whether completions of earlier rounds are included."""
        return False

    @property
    def several_sequences(self) -> bool:
        """Whether an episode may be several sequences (`Rollout.parts`)."""
        return False

    @property
    def misfit(self) -> str:
        """Why its own settings do not fit together, each of them valid by itself; empty: they do."""
        return ""

    @property
    def stands_behind(self) -> str:
        """The context with an earlier answer that completions are trained after; empty: the plain prompt."""
        return ""

    @property
    def reads(self) -> Reads:
        """The rows of the data that its prompts are read from."""
        return "problems"

    @property
    def episodes(self) -> EpisodeSettings | None:
        """Settings of the environment for the policy's turns, in evaluations too; None: a completion is one turn."""
        return None

    @property
    def adviser(self) -> Feedback | None:
        """Source of feedback in words, in the warm start too; None: no feedback."""
        return None

    @property
    @abstractmethod
    def group_size(self) -> int:
        """Completions of one prompt (G) that count for a comparison within the group."""

    @property
    @abstractmethod
    def sampling(self) -> Sampling:
        """Settings of an engine's sampling, which also define the distribution that the learner's log-probs mean."""

    @property
    def mask_top_p(self) -> float:
        """Share of the probability of the mask that every log-prob is read within; 1: no mask."""
        return 1.0

    @property
    def gives(self) -> tuple[Extra, ...]:
        """Further data that come with the completions, for parts that request them."""
        return ()

    @property
    def needs_companion(self) -> str:
        """Name of the companion that another part must bring."""
        return ""

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the most completions of one of `problems`, including those in addition to the samples."""
        return self.group_size

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Return the most tokens that a sequence of each problem has beyond its prompt and `max_tokens`, [problems]."""
        return [0] * len(problems)

    @abstractmethod
    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Generate completions of `problems`, those of one prompt next to each other, [prompts * G]."""

    @property
    def exports(self) -> bool:
        """Whether the policy is used with more than a plain prompt and its own weights, which `export` writes."""
        return False

    def export(self, learner: Learner, codec: Codec, start: Path, folder: Path) -> None:
        """Write what the policy needs at inference (`models.policies.use`) into its model folder; nothing by default.

        Args:
            learner: as the run ended.
            start: the model folder that the run began with.
            folder: the policy's, with weights and tokenizer in it already.
        """


@dataclass(frozen=True, kw_only=True)
class Reward(Verifying):
    """The reward of each completion, or of each of its tokens."""

    slot = "rewards"
    weight: Number = 1.0
    """Weight of this reward in the sum of all."""
    label: str = ""
    """Name of the component in metrics and sample tables; empty: the name of the part."""
    limits: Limits = AS_USUAL
    """Time limit of the reward, and the value used if it fails."""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name)

    @property
    def needs_reward_model(self) -> bool:
        """Whether a reward model must be fitted."""
        return False

    @property
    def needs_steps(self) -> bool:
        """Whether it must be a process reward model, which scores each step."""
        return False

    @property
    def needs_goal(self) -> bool:
        """Whether it must be a reward model with a goal, the state that good completions reach."""
        return False

    @property
    def principle(self) -> str:
        """The principle of the recipe that the reward model must follow; empty: any."""
        return ""

    @property
    def by_token(self) -> bool:
        """Whether it is given token by token, as by a `TokenReward`."""
        return False

    @property
    def reads_learner(self) -> bool:
        """Whether it reads the learner's models: then all ranks call it, else only the first, for all of them."""
        return False

    @abstractmethod
    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Compute values before weighting, [completions]. A `UserError` stops the run; `limits` handles the rest."""

    def learn(self, world: World, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> dict[str, float]:
        """Fit the companion, if any, to the rewards before this one, by label, `by` among them. Returns its metrics."""
        return {}


class TokenReward(Reward):
    """The reward of each token of a completion."""

    slot = "rewards"
    by_token = True

    @abstractmethod
    def tokens(self, world: World, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Compute values before weighting, [completions] tensors of [tokens of it]."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Return their sums, [completions]."""
        return sum_of_tokens(self.tokens(world, rollouts))


class Select(SlotPart):
    """The choice of the completions that the policy is trained on."""

    slot = "select"

    @property
    def makes_pairs(self) -> bool:
        """Whether it leaves two completions of different reward in each group."""
        return False

    @property
    def drops_flat(self) -> bool:
        """Whether it leaves out groups whose completions all have the same reward."""
        return False

    @property
    def refills(self) -> int:
        """How often a round may draw further prompts, until as many groups are left as it has prompts."""
        return 0

    @abstractmethod
    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of the completions to keep, [kept], int64."""


class Advantage(SlotPart):
    """How much better than expected each token of a completion was."""

    slot = "advantage"

    @property
    def needs_group(self) -> bool:
        """Whether the signal of a group of one is zero."""
        return False

    @property
    def least_group(self) -> int:
        """Least number of completions of a prompt that it needs."""
        return 2 if self.needs_group else 1

    @property
    def kl_in_reward(self) -> float:
        """Reduction of the reward per nat of the KL to the reference; needs a reference unless it is zero."""
        return 0.0

    @property
    def learns_from_flat_groups(self) -> bool:
        """Whether it is not zero for the completions of a prompt that all have the same reward."""
        return False

    @property
    def needs_token_rewards(self) -> bool:
        """Whether it reads rewards token by token, which some reward must give."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether it keeps rollouts in the learner's memory, which the source then may not use."""
        return False

    @property
    def critic_pretraining(self) -> int:
        """Optimiser steps of the critic before the policy is trained with it."""
        return 0

    @abstractmethod
    def __call__(self, world: World, scored: Scored) -> Signal:
        """Compute advantages token by token."""

    def learn(self, world: World, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the companion, if any, to the round, after the policy's fit. Returns its metrics."""
        return {}


class CompletionAdvantage(Advantage):
    """How much better than expected a completion was, the same at each of its tokens."""

    slot = "advantage"

    @abstractmethod
    def of_completions(self, world: World, scored: Scored) -> Tensor:
        """Compute advantages, [completions]."""

    def __call__(self, world: World, scored: Scored) -> Signal:
        """Return the completion's advantage at each of its tokens."""
        return Signal.of_completions(self.of_completions(world, scored), scored.lengths)


class Objective(SlotPart):
    """The loss that the policy minimises."""

    slot = "objective"
    level: ClassVar[Level]
    """Unit of the loss: a token, a completion, a pair or a group (whose completions are in one row). No default."""

    @property
    def needs_group(self) -> bool:
        """Whether it compares the completions of a group."""
        return self.level == "group"

    @property
    def reads_tokens(self) -> bool:
        """Whether it receives the log-prob of each token instead of sums although its loss is not per token."""
        return False

    @property
    def on_policy_only(self) -> bool:
        """Whether it is valid only for completions of the current policy."""
        return False

    @property
    def kl(self) -> float:
        """Weight of a KL to the reference in the loss; needs a reference unless it is zero."""
        return 0.0

    @property
    def entropy_bonus(self) -> float:
        """Weight of the tokens' mean entropy, nats; the fit subtracts the product, however the loss is averaged."""
        return 0.0

    @property
    def divergence(self) -> Divergence | None:
        """The divergence that the batch contains as `TokenBatch.divergence`; None: none is computed."""
        return None

    def mark(self, tokens: RoundTokens) -> Tensor | None:
        """Return which tokens the loss treats differently (`TokenBatch.marked`), [tokens], bool; None: none."""
        return None

    @abstractmethod
    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each unit before any reduction, and values to log of each, no gradient; `log_prob`, by
        the level, is [tokens] (also for one that `reads_tokens`), [completions] (sums; of a group's objective too) or
        [pairs, 2]."""


class Reference(SlotPart):
    """The model that the policy is compared with."""

    slot = "reference"

    @property
    def kept(self) -> bool:
        """False if the method has no reference: none is kept in memory."""
        return True

    @property
    def moves(self) -> bool:
        """Whether it ever changes: a reference that does is a separate copy, also with an adapter."""
        return False

    @property
    def resets_optimiser(self) -> bool:
        """Whether the optimiser's moments are cleared when the reference has changed."""
        return False

    @property
    def offload(self) -> bool:
        """Whether its weights are on the learner's device only while they are read."""
        return False

    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """Move the reference after a round, in place. Returns whether it changed."""
        return False
