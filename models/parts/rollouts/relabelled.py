"""Failed episodes under the goal that they reached (hindsight in active data gathering, LID; paper 51).

    x, y failed   ->   x', y      where y solves x'; the environment returns that problem (`reached`)

The actions of an episode are right for some goal, even if not for the requested one; under that goal the episode is a
demonstration that the policy wrote itself. A new goal counts only when it is verified: the environment is opened with
the relabelled problem and the episode's own seed, its turns are played again, its answers must be the same word for
word, and the goal must be reached. A relabelled episode has a group of its own and no behaviour log-probs, because it
was not drawn from pi(. | x'). An episode that would not fit after the longer prompt of its goal is left out.
Andrychowicz et al. 2017 (arXiv 1707.01495) for the idea.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.agents.play.replaying import replay
from models.base.seeds import round_seed, turn_seed
from models.engines.engine import requests_of
from models.method.problem import Problem, texts_of
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.episodes.solved import reached_goal
from models.parts.rollouts.episodes import Episodes


@part("relabelled")
class Relabelled(Episodes):
    """Episodes, and failed ones again under the goals that they reached. Set under `rollouts:`."""

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return episodes, those of one prompt next to each other, then the relabelled ones, [prompts * G and more]."""
        made = super().__call__(resources, problems, round_number)
        requests = requests_of(
            [problem.tokens for problem in problems], self.sampling, round_seed(resources.seed, round_number)
        )
        again = [
            (relabelled, len(rollout.problem.tokens) + self.max_tokens - len(relabelled.completion))
            for rollout, request in zip(made, requests, strict=True)
            if rollout.episode.cut in ("", "turns") and not reached_goal(rollout)
            if (relabelled := self._relabelled(rollout, turn_seed(request.seed, -1))) is not None
        ]
        prompts = resources.codec.prompts(*texts_of([rollout.problem for rollout, _ in again]))
        return made + [
            replace(rollout, problem=replace(rollout.problem, tokens=tuple(ids)), group=len(problems) + number)
            for number, ((rollout, room), ids) in enumerate(zip(again, prompts, strict=True))
            if len(ids) <= room
        ]

    def _relabelled(self, rollout: Rollout, seed: int) -> Rollout | None:
        """Return the episode, up to where it reached another goal, under that goal; None: no other goal is verified."""
        goal = self.environment.reached(rollout.problem, rollout.episode.turns)
        if goal is None:
            return None
        seen = replay(self.environment, rollout.problem, goal, rollout.episode.turns, seed, self.seconds)
        if seen is None:
            return None
        stop = seen.turns[-1].stop
        made = replace(
            rollout,
            problem=goal,
            completion=rollout.completion[:stop],
            behaviour_log_probs=None,
            text="\n".join(turn.text for turn in seen.turns),
            finished=True,
            trained=None if rollout.trained is None else rollout.written[:stop],
            source=replace(rollout.source, origin="relabelled"),
            episode=replace(rollout.episode, turns=seen.turns, cut="", solved=seen.solved),
        )
        return made if reached_goal(made) else None
