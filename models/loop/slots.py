"""The interfaces of the slots. A part is anything that fits; none of them logs, and none knows the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from models.engine.engine import Engine, Sampling
from models.learner.packing import Sequences
from models.loop.learner import Companion, Learner
from models.loop.readings import Readings
from models.loop.rollout import Problem, Rollout, Scored, TokenBatch
from models.loop.truncation import WRONG, TruncationSettings
from models.text.encoding import Codec


@dataclass(frozen=True)
class World:
    """What parts may need beside their settings: opened once before the loop begins."""

    codec: Codec
    engine: Engine | None
    """None where the recipe's source draws nothing."""
    score_with_reward_model: Callable[[Sequences], Tensor] | None
    """Scores of prompts with their completions, [completions]; None where no reward model was fitted."""
    seed: int
    learner: Learner | None = None
    """Policy, reference and companions as they stand; the loop puts it here."""
    token_budget: int = 16384
    """Tokens of one packed row, for parts that read completions with a model."""
    readings: Readings | None = None
    """Log-probs of this round's completions; the loop puts them here anew every round."""
    truncated: TruncationSettings = WRONG
    """What becomes of completions that did not end."""

    def sampler(self) -> Engine:
        """The engine, which every source that draws has."""
        assert self.engine is not None, "the source says that it draws"
        return self.engine

    def models(self) -> Learner:
        """The learner, which every part sees inside the loop."""
        assert self.learner is not None, "the loop puts the learner into the world"
        return self.learner

    def log_probs(self) -> Readings:
        """Log-probs under policy and reference, each completion read once a round."""
        return self.readings or Readings(self.models(), self.token_budget)


Reads = Literal["problems", "demonstrations", "preferences"]
"""What a source's prompts are taken from: problems with an answer, or prompts with the answers that the data hold."""


Beside = Literal["greedy", "opponents", "choices"]
"""What a source may lay beside or into the completions that teach, for parts that cannot do without.

greedy: the policy's likeliest completion of each prompt
opponents: completions to be compared with only, which the policy does not learn from
choices: at each token, whether the policy wrote it
"""


class Source(Protocol):
    """Where completions come from.

    Beside what stands here one may have `beside`, a tuple of `Beside`: what it lays beside the completions, for parts
    whose `asks` names it; and `needs_companion`, the name of a companion that another part must bring.
    """

    draws: ClassVar[bool]
    """Whether it needs an engine; a source that only reads the data, or decodes with the learner's own models, starts
    none. One that draws and reads those models too has `reads_models = True`: it cannot work ahead."""
    prompts: int
    """Prompts of one round."""
    max_tokens: int
    """Longest completion, in tokens."""

    @property
    def reads(self) -> Reads:
        """Which rows of the data its prompts are."""
        ...

    @property
    def group_size(self) -> int:
        """Completions of one prompt (G) that count for a comparison within the group."""
        ...

    @property
    def sampling(self) -> Sampling:
        """How an engine draws, and so which distribution the learner's log-probs mean."""
        ...

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Most completions of one of `problems`, what stands beside the samples included."""
        ...

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Most tokens that a sequence of each problem holds beyond its prompt and `max_tokens`, [problems]: a longer
        prompt, feedback, a second answer."""
        ...

    def __call__(self, world: World, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Completions of `problems`, those of one prompt side by side, [prompts * G]."""
        ...


@runtime_checkable
class Exported(Protocol):
    """A source whose policy is used with more than a plain prompt and its own weights (`models.policy.use`)."""

    def export(self, learner: Learner, codec: Codec, start: Path, folder: Path) -> None:
        """Write what the policy needs where it is used into its model folder.

        Args:
            learner: as the run ended.
            codec: the policy's tokenizer.
            start: the model folder that the run began with.
            folder: the policy's, with weights and tokenizer in it already.
        """
        ...


class Reward(Protocol):
    """What each completion is worth, or each of its tokens.

    One that holds completions against the problems' answers has `needs_answers = True`.
    """

    weight: float
    label: str
    """Name of the component in metrics and sample tables."""

    @property
    def needs_reward_model(self) -> bool:
        """Whether a reward model must be fitted."""
        ...

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor | Sequence[Tensor]:
        """Values before weighting, [completions], or token by token, [completions] tensors of [tokens of it]."""
        ...


class Select(Protocol):
    """Which completions teach. One that leaves two of different reward in each group has `makes_pairs = True`."""

    def __call__(self, scored: Scored) -> Tensor:
        """Indices of the completions to keep, [kept], int64."""
        ...


@dataclass(frozen=True)
class Signal:
    """How much better than expected, token by token, [completions] tensors of [tokens of it] each."""

    tokens: Sequence[Tensor]
    """Advantage of each token."""
    returns: Sequence[Tensor] | None = None
    """What the critic should have said at each token."""


class Advantage(Protocol):
    """How much better than expected a completion was.

    Beside what stands here one may have `flat_groups_teach = True`, where it is not zero for completions that are all
    worth the same; `needs_token_rewards = True`, where it reads rewards token by token, which rewards that give them
    (`by_token = True`) bring; and `asks`, what a source must lay beside the completions.
    """

    needs_group: ClassVar[bool]
    """Whether a group of one has no signal under it."""

    def __call__(self, world: World, scored: Scored) -> Tensor | Signal:
        """Advantages, [completions], or token by token."""
        ...


@runtime_checkable
class Accompanied(Protocol):
    """A part with a model of its own that learns beside the policy."""

    companion: ClassVar[str]
    """Its name among the learner's companions, and in metrics."""

    def accompany(self, policy: nn.Module) -> Companion:
        """The model as it begins, made from the policy as it begins."""
        ...


@runtime_checkable
class LearningAdvantage(Accompanied, Protocol):
    """An advantage whose companion learns after the policy's fit: a critic."""

    def learn(self, world: World, scored: Scored, signal: Signal, round_number: int) -> dict[str, float]:
        """Fit the companion to what the round has shown. Returns what is worth watching."""
        ...


@runtime_checkable
class LearningReward(Accompanied, Protocol):
    """A reward whose companion learns from the other rewards before it speaks: a process reward model."""

    by: str
    """Label of the component that it learns from; it stands before this one in the recipe."""

    def learn(self, world: World, rollouts: Sequence[Rollout], components: Mapping[str, Tensor]) -> dict[str, float]:
        """Fit the companion to the components of the rewards before it in the recipe, [completions] each."""
        ...


class Objective(Protocol):
    """What the policy minimises.

    Beside what stands here one may have `entropy_bonus`, what a nat of the tokens' mean entropy is worth: the fit takes
    it off the loss, as a mean over tokens however the loss is averaged.
    """

    level: ClassVar[Literal["token", "completion", "pair", "group"]]
    """Whether the loss has one entry a token, one a completion, one a pair of completions of the same prompt, or one a
    group. Completions of a pair or a group stand in one row, and so are seen together."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of each unit before any reduction, and what is worth watching, one value a unit, no gradient.

        `log_prob` is [tokens], [completions] (sums over their tokens; of a group's objective too) or [pairs, 2]
        (better, worse), by the level.
        """
        ...


class Reference(Protocol):
    """What the policy is held against."""

    needed: ClassVar[bool]
    """False where the method has no reference: none is kept in memory."""
    moves: ClassVar[bool]
    """Whether it ever changes: one that does is a copy of its own, also beside an adapter."""
    resets_optimiser: ClassVar[bool]
    """Whether the optimiser forgets its moments when the reference has changed."""

    def follow(self, reference: nn.Module, policy: nn.Module, round_number: int) -> bool:
        """Move the reference after a round, in place. Returns whether it changed."""
        ...
