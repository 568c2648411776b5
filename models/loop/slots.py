"""The slots of the loop: what a part of each must bring, and all that it may say of itself.

A part is a class derived from the class of its slot and registered by `@part` (models.parts). What a part says of
itself are its traits, declared here with the value that they have where a part is silent; a trait that depends on a
setting is a property. `models.recipe.combinations` holds the traits of a recipe's parts against one another, so that
no method is named there. A trait that is not declared here is refused at import. No part logs, none knows the loop.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from torch import Tensor, nn

from models.bounds import Number
from models.engine.engine import Sampling
from models.episodes.play import EpisodeSettings
from models.loop.feedback import Feedback
from models.loop.judge import Divergence
from models.loop.learner import Learner
from models.loop.limits import AS_USUAL, Limits
from models.loop.rollout import Extra, Problem, Reads, Rollout, Scored, TokenBatch, sum_of_tokens
from models.loop.round_tokens import RoundTokens
from models.loop.signal import Signal
from models.loop.slot_part import SlotPart
from models.loop.verifying import Verifying
from models.loop.world import World
from models.text.encoding import Codec

Level = Literal["token", "completion", "pair", "group"]
"""What an objective has a loss for: tokens, completions, pairs of completions of the same prompt, or groups."""


class Rollouts(SlotPart):
    """Where completions come from."""

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
        """Whether they read the learner's models beside an engine: they cannot work ahead of the learner."""
        return False

    @property
    def in_flight(self) -> bool:
        """Whether they are `sampling` of each prompt alone, so that completions can be trained on when they end."""
        return False

    @property
    def off_policy(self) -> bool:
        """Whether completions of earlier rounds are among them."""
        return False

    @property
    def several_sequences(self) -> bool:
        """Whether an episode may be several sequences (`Rollout.parts`)."""
        return False

    @property
    def misfit(self) -> str:
        """Why its own settings do not go together, each of them right by itself; empty: they do."""
        return ""

    @property
    def stands_behind(self) -> str:
        """The context with an earlier answer that completions are trained behind; empty: the plain prompt."""
        return ""

    @property
    def reads(self) -> Reads:
        """Which rows of the data their prompts are."""
        return "problems"

    @property
    def episodes(self) -> EpisodeSettings | None:
        """Whom the policy takes turns with, in evaluations too; None: a completion is one turn."""
        return None

    @property
    def adviser(self) -> Feedback | None:
        """Who says in words what to do better, in the warm start too; None: nobody."""
        return None

    @property
    @abstractmethod
    def group_size(self) -> int:
        """Completions of one prompt (G) that count for a comparison within the group."""

    @property
    @abstractmethod
    def sampling(self) -> Sampling:
        """How an engine draws, and so which distribution the learner's log-probs mean."""

    @property
    def mask_top_p(self) -> float:
        """Share of the probability of the mask that every log-prob is read within; 1: no mask."""
        return 1.0

    @property
    def gives(self) -> tuple[Extra, ...]:
        """What stands with the completions, for parts that ask for it."""
        return ()

    @property
    def needs_companion(self) -> str:
        """Name of the companion that another part must bring."""
        return ""

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Most completions of one of `problems`, what stands beside the samples included."""
        return self.group_size

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Most tokens that a sequence of each problem holds beyond its prompt and `max_tokens`, [problems]."""
        return [0] * len(problems)

    @abstractmethod
    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Completions of `problems`, those of one prompt side by side, [prompts * G]."""

    @property
    def exports(self) -> bool:
        """Whether the policy is used with more than a plain prompt and its own weights, which `export` writes."""
        return False

    def export(self, learner: Learner, codec: Codec, start: Path, folder: Path) -> None:
        """Write what the policy needs where it is used (`models.policy.use`) into its model folder; nothing by default.

        Args:
            learner: as the run ended.
            start: the model folder that the run began with.
            folder: the policy's, with weights and tokenizer in it already.
        """


@dataclass(frozen=True, kw_only=True)
class Reward(Verifying):
    """What each completion is worth, or each of its tokens."""

    slot = "rewards"
    weight: Number = 1.0
    """Of this reward in the sum of all."""
    label: str = ""
    """Name of the component in metrics and sample tables; empty: the name of the part."""
    limits: Limits = AS_USUAL
    """How long it may take, and what stands in place of a value that it does not give."""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name)

    @property
    def needs_reward_model(self) -> bool:
        """Whether a reward model must be fitted."""
        return False

    @property
    def needs_steps(self) -> bool:
        """Whether it must be a process reward model, which tells what each step is worth."""
        return False

    @property
    def needs_goal(self) -> bool:
        """Whether it must be a reward model with a goal, the state that good completions come to."""
        return False

    @property
    def principle(self) -> str:
        """What the reward model must go by, one of the recipe's principles; empty: whatever it goes by."""
        return ""

    @property
    def by_token(self) -> bool:
        """Whether it is given token by token: what a `TokenReward` is."""
        return False

    @property
    def reads_learner(self) -> bool:
        """Whether it reads the learner's models: then all ranks call it, else the first alone, for all of them."""
        return False

    @abstractmethod
    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values before weighting, [completions]. A `UserError` stops the run, other failures are as `limits` say."""

    def learn(self, world: World, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> dict[str, float]:
        """Fit the companion, if any, to the rewards before this one, by label; `by` is one of them. What to watch."""
        return {}


class TokenReward(Reward):
    """What each token of a completion is worth."""

    slot = "rewards"
    by_token = True

    @abstractmethod
    def tokens(self, world: World, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Values before weighting, [completions] tensors of [tokens of it]."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Their sums, [completions]."""
        return sum_of_tokens(self.tokens(world, rollouts))


class Select(SlotPart):
    """Which completions the policy is trained on."""

    slot = "select"

    @property
    def makes_pairs(self) -> bool:
        """Whether it leaves two of different reward in each group."""
        return False

    @property
    def drops_flat(self) -> bool:
        """Whether it leaves out groups in which all are worth the same."""
        return False

    @property
    def refills(self) -> int:
        """How often a round may draw further prompts, until as many groups are left as it has prompts."""
        return 0

    @abstractmethod
    def __call__(self, scored: Scored) -> Tensor:
        """Indices of the completions to keep, [kept], int64."""


class Advantage(SlotPart):
    """How much better than expected each token of a completion was."""

    slot = "advantage"

    @property
    def needs_group(self) -> bool:
        """Whether a group of one has no signal under it."""
        return False

    @property
    def least_group(self) -> int:
        """Completions of a prompt that it needs at least."""
        return 2 if self.needs_group else 1

    @property
    def kl_in_reward(self) -> float:
        """What a nat of the KL to the reference takes off the reward; needs a reference where it is not zero."""
        return 0.0

    @property
    def learns_from_flat_groups(self) -> bool:
        """Whether it is not zero for completions of a prompt that are all worth the same."""
        return False

    @property
    def needs_token_rewards(self) -> bool:
        """Whether it reads rewards token by token, which some reward must give."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether it keeps rollouts in the learner's memory, which then no source may."""
        return False

    @property
    def critic_pretraining(self) -> int:
        """Optimiser steps of the critic before the policy is trained with it."""
        return 0

    @abstractmethod
    def __call__(self, world: World, scored: Scored) -> Signal:
        """Advantages token by token."""

    def learn(self, world: World, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the companion, if there is one, to the round, after the policy's fit. Returns what is worth watching."""
        return {}


class CompletionAdvantage(Advantage):
    """How much better than expected a completion was, the same at each of its tokens."""

    slot = "advantage"

    @abstractmethod
    def of_completions(self, world: World, scored: Scored) -> Tensor:
        """Advantages, [completions]."""

    def __call__(self, world: World, scored: Scored) -> Signal:
        """The completion's advantage at each of its tokens."""
        return Signal.of_completions(self.of_completions(world, scored), scored.lengths)


class Objective(SlotPart):
    """What the policy minimises."""

    slot = "objective"
    level: ClassVar[Level]
    """Whether the loss has one entry a token, a completion, a pair or a group (which stand in one row). No default."""

    @property
    def needs_group(self) -> bool:
        """Whether it compares the completions of a group."""
        return self.level == "group"

    @property
    def reads_tokens(self) -> bool:
        """Whether it is given the log-prob of each token and not sums, where its loss is not one of tokens anyway."""
        return False

    @property
    def on_policy_only(self) -> bool:
        """Whether it is right only for completions of the policy as it stands."""
        return False

    @property
    def kl(self) -> float:
        """Weight of a KL to the reference in the loss; needs a reference where it is not zero."""
        return 0.0

    @property
    def entropy_bonus(self) -> float:
        """What a nat of the tokens' mean entropy is worth: the fit takes it off the loss, however that is averaged."""
        return 0.0

    @property
    def divergence(self) -> Divergence | None:
        """Which divergence the batch is to hold as `TokenBatch.divergence`; None: none is computed."""
        return None

    def mark(self, tokens: RoundTokens) -> Tensor | None:
        """Which of a round's tokens the loss treats otherwise (`TokenBatch.marked`), [tokens], bool; None: none."""
        return None

    @abstractmethod
    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of each unit before any reduction, and what to watch of each, no gradient; `log_prob`, by the level, is
        [tokens] (also for one that `reads_tokens`), [completions] (sums; of a group's objective too) or [pairs, 2]."""


class Reference(SlotPart):
    """What the policy is held against."""

    slot = "reference"

    @property
    def kept(self) -> bool:
        """False where the method has no reference: none is kept in memory."""
        return True

    @property
    def moves(self) -> bool:
        """Whether it ever changes: a reference that does is a copy of its own, also beside an adapter."""
        return False

    @property
    def resets_optimiser(self) -> bool:
        """Whether the optimiser forgets its moments when the reference has changed."""
        return False

    @property
    def offload(self) -> bool:
        """Whether its weights are on the learner's device only while they are read."""
        return False

    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """Move the reference after a round, in place. Returns whether it changed."""
        return False
