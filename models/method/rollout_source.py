"""The slot `rollouts`: sources of completions, such as an engine that samples from the policy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from models.engines.engine import Sampling
from models.method.environment import Environment, EpisodeSettings
from models.method.feedback import Feedback
from models.method.learner import Learner
from models.method.problem import Problem, Reads
from models.method.resources import RunResources
from models.method.rollout import Extra, Rollout
from models.method.slot_part import SlotPart
from models.text.encoding import Codec


class Rollouts(SlotPart):
    """Base class of sources of completions."""

    slot = "rollouts"
    prompts: int
    """Number of prompts per round. A setting."""
    max_tokens: int
    """Longest completion, in tokens. A setting."""

    @property
    def draws(self) -> bool:
        """Whether it samples with an engine; otherwise no engine is started."""
        return True

    @property
    def reads_models(self) -> bool:
        """Whether it reads the learner's models in addition to an engine, so that no round can be generated ahead."""
        return False

    @property
    def in_flight(self) -> bool:
        """Whether it only samples completions with `sampling`, as `schedule.async` of 2 or more requires."""
        return False

    @property
    def off_policy(self) -> bool:
        """Whether its completions may be from earlier rounds."""
        return False

    @property
    def fresh_first(self) -> bool:
        """Whether completions of a prompt that comes for the first time are new, although it is off-policy."""
        return False

    @property
    def several_sequences(self) -> bool:
        """Whether models may have to read an episode as several sequences (`RolloutEpisode.parts`)."""
        return False

    @property
    def training_context(self) -> str:
        """Context with an earlier answer after which completions are trained; empty: the plain prompt."""
        return ""

    @property
    def reads(self) -> Reads:
        """Kind of rows in the data that its prompts are read from."""
        return "problems"

    @property
    def episodes(self) -> EpisodeSettings | None:
        """Settings of episodes with an environment, in evaluations too; None: a completion is a single turn."""
        return None

    @property
    def adviser(self) -> Feedback | None:
        """Part that gives feedback in words, which the warm start uses too; None: no feedback."""
        return None

    @property
    def teaches(self) -> Environment | None:
        """Environment that makes further demonstrations for the warm start (`Environment.lessons`); None: there are
        none."""
        return None

    @property
    @abstractmethod
    def group_size(self) -> int:
        """Number of completions per prompt (G) that are compared within their group."""

    @property
    @abstractmethod
    def sampling(self) -> Sampling:
        """Sampling settings, which also define the distribution of the learner's log-probs."""

    @property
    def mask_top_p(self) -> float:
        """Top-p of the reference's mask on the tokens that may be drawn (`Learner.mask_top_p`); 1: no mask."""
        return 1.0

    @property
    def gives(self) -> tuple[Extra, ...]:
        """Kinds of further data that it provides with the completions, for parts that ask for them."""
        return ()

    @property
    def needs_companion(self) -> str:
        """Name of the companion model that another part of the recipe must provide; empty: none."""
        return ""

    def groups_in_round(self) -> int:
        """Return the number of groups of completions in a round: one for each prompt."""
        return self.prompts

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the largest number of completions of one prompt, including any in addition to the samples."""
        return self.group_size

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Return how many tokens a problem's sequence may have beyond its prompt and `max_tokens`, [problems]."""
        return [0] * len(problems)

    @abstractmethod
    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Generate completions of `problems`, those of one prompt next to each other, [prompts * G]."""

    @property
    def exports(self) -> bool:
        """Whether inference needs more than a plain prompt and the policy's weights; `export` then writes the rest."""
        return False

    def export(self, learner: Learner, codec: Codec, start: Path, folder: Path) -> None:
        """Write further files that inference needs (`models.policies.use`) into the model folder; none by default.

        Args:
            learner: as the run ended.
            start: the model folder that the run began with.
            folder: the policy's, with weights and tokenizer in it already.
        """
