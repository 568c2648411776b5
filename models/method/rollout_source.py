"""The slot `rollouts`: the source of completions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from models.engines.engine import Sampling
from models.method.environment import EpisodeSettings
from models.method.feedback import Feedback
from models.method.learner import Learner
from models.method.problem import Problem, Reads
from models.method.rollout import Extra, Rollout
from models.method.slot_part import SlotPart
from models.method.world import World
from models.text.encoding import Codec


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
        """Whether an episode may be several sequences (`RolloutEpisode.parts`)."""
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
