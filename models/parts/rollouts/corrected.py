"""Episodes, and the turns that an environment corrects, each as an answer to imitate (GTR, paper 218).

    episode       prompt | 3r | act | r | picture | 2d | act | ...
    corrections   prompt | 2r1d
                  prompt | 3r | act | r | picture | 1r1d

Rewards of actions alone let thoughts collapse: they become alike, and unrelated to what the policy sees. An environment
that knows what a turn of thought should have said reports it (`correction` in its info). The corrected thought follows
the history that the policy has led to itself, as in DAgger, so that the policy learns it for the states it visits. The
corrections are demonstrations: with advantage `among_samples` they do not move the baseline of the episodes, and with
objective `chord` they are imitated while the episodes are reinforced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from models.base.bounds import Positive
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutEpisode, RolloutSource
from models.parts.rollouts.episodes import Episodes
from models.text.encoding import Codec


@part("corrected")
class Corrected(Episodes):
    """Episodes, and corrections of their turns. Set under `rollouts:`."""

    corrections: Positive = 4
    """Largest number of corrections of an episode; its first ones are kept."""
    only_wrong: bool = True
    """Whether turns that equal their correction are left out."""

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the number of episodes and corrections."""
        return self.group_size * (1 + self.corrections)

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return episodes, then corrections of them, prompt by prompt, [prompts * G and more]."""
        rollouts: list[Rollout] = []
        for _, group in groupby(super().__call__(resources, problems, round_number), key=lambda rollout: rollout.group):
            episodes = list(group)
            rollouts += episodes
            for episode in episodes:
                rollouts += self._corrections(resources.codec, episode)
        return rollouts

    def _corrections(self, codec: Codec, episode: Rollout) -> Iterator[Rollout]:
        """Return an episode's corrections, each after the history of its turn."""
        turns = [
            turn
            for turn in episode.episode.turns
            if turn.correction and not (self.only_wrong and turn.text.split() == turn.correction.split())
        ][: self.corrections]
        texts = codec.completions([turn.correction for turn in turns]) if turns else []
        for turn, ids in zip(turns, texts, strict=True):
            history = episode.completion[: turn.start]
            yield Rollout(
                replace(episode.problem, tokens=(*episode.problem.tokens, *history)),
                episode.group,
                tuple(ids),
                None,
                turn.correction,
                finished=True,
                source=RolloutSource(origin="demonstration"),
                episode=RolloutEpisode(history=len(history)),
            )
