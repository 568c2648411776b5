"""Episodes: the policy and an environment take turns, G episodes of every prompt of the round.

    prompt | turn 1 | the environment's answer | turn 2 | ... | turn n

An episode is one rollout, whose completion is everything after the prompt. If several seats learn, it is one rollout
for each of them, in a group of the seat's own. Only the policy's tokens are trained on; the environment's text is
neither rewarded nor penalised. With one turn it equals `sample`, bit for bit. The chain of text and tool calls as one
sequence with masked tool output is that of ReTool (arXiv 2504.11536) and Search-R1 (arXiv 2503.09516).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from models.agents.play.play import play
from models.agents.play.speakers import keep_partner
from models.base.bounds import Positive
from models.base.images import begin_round_of_drawing
from models.base.seeds import round_seed
from models.base.source_code import GivenFile
from models.method.environment import Environment, EpisodeSettings
from models.method.episode import Episode, EpisodeLimits, Rule
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.registry import default_part, part, slot_type
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutEpisode
from models.parts.rollouts.sample import Sample
from models.text.bridge import Role
from models.text.encoding import Codec

if TYPE_CHECKING:
    Chosen = Environment
else:
    Chosen = slot_type("environment")


@part("episodes")
class Episodes(Sample):
    """Turns of the policy and of an environment. Set under `rollouts:`."""

    environment: Chosen = field(default_factory=lambda: default_part("environment")())
    """Environment that answers the policy's turns."""
    turns: Positive = 4
    """Most turns of an episode. `max_tokens` limits the sum of its tokens, the environment's included."""
    turn_tokens: Positive | None = None
    """Longest turn, in tokens; null: the rest of the episode's tokens."""
    seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Time limit of the environment for one answer, seconds."""
    at_last_turn: Rule = "kept"
    """Treatment of an episode that used all its turns: kept unchanged, counted as wrong, or masked (left out of the
    loss)."""
    when_stuck: Rule = "masked"
    """Treatment of an episode whose environment took too long or failed, with the same three choices."""
    role: Role = "user"
    """Role of the environment in a chat template."""
    waves: bool = True
    """Whether all episodes take a turn, then all environments answer. If false, each episode continues as soon as its
    own answer arrives, for slow environments. The tokens are the same, except for draws that the last bits of a sum
    decide."""

    @property
    def given(self) -> tuple[GivenFile, ...]:
        """Files of the environment."""
        return self.environment.given

    def try_out(self) -> None:
        """Check that the environment can be used."""
        self.environment.try_out()

    @property
    def exports(self) -> bool:
        """Whether the frozen model that the policy was trained with is kept with the policy."""
        return self.environment.asks_frozen and self.environment.frozen is None

    def export(self, learner: Learner, codec: Codec, start: Path, folder: Path) -> None:
        """Keep the frozen model that the run began with next to the policy. See `Rollouts.export`."""
        keep_partner(self.environment, start, folder)

    @property
    def episodes(self) -> EpisodeSettings:
        """Settings of the episodes, used in evaluations too."""
        limits = EpisodeLimits(
            turns=self.turns,
            turn_tokens=self.turn_tokens,
            seconds=self.seconds,
            at_last_turn=self.at_last_turn,
            when_stuck=self.when_stuck,
        )
        return EpisodeSettings(environment=self.environment, limits=limits, role=self.role, waves=self.waves)

    @property
    def teaches(self) -> Environment | None:
        """The environment, if it makes demonstrations for the warm start."""
        return self.environment if self.environment.most_lessons else None

    def groups_in_round(self) -> int:
        """Return the number of groups of completions in a round: one for each prompt and seat that learns."""
        return self.prompts * self.environment.learning

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Play episodes about `problems`, those of one prompt and seat next to each other, [prompts * seats * G]."""
        begin_round_of_drawing(rollout.completion for made in resources.learner.memory for rollout in made)
        seed = round_seed(resources.seed, round_number)
        settings = replace(self.episodes, environment=self.environment.in_round(round_number))
        groups = play(resources.sampler(), resources.codec, settings, problems, self.sampling, seed, resources.start)
        seats = self.environment.learning
        return [
            as_rollout(problem, number * seats + episode.seat, episode, settings.limits)
            for number, (problem, group) in enumerate(zip(problems, groups, strict=True))
            for episode in group
        ]


def as_rollout(problem: Problem, group: int, episode: Episode, limits: EpisodeLimits) -> Rollout:
    """Convert an episode to a rollout of the loop.

    Args:
        problem: subject of the episode.
        group: number of its prompt, and of the seat, in the round.
        episode: as it was played.
        limits: define the treatment of an episode that was cut.
    """
    rule = limits.rule(episode.cut)
    if episode.prompt and episode.prompt != tuple(problem.tokens):
        problem = replace(problem, tokens=episode.prompt)
    made = Rollout(
        problem,
        group,
        episode.tokens,
        episode.log_probs,
        episode.text,
        finished=rule == "kept",
        episode=RolloutEpisode(turns=episode.turns, cut=episode.cut, solved=episode.solved),
    )
    trained = (False,) * len(made.completion) if rule == "masked" else made.written
    return made if all(trained) else replace(made, trained=trained)
