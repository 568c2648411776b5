"""Failed problems are tried again with guidance that the training sequence does not contain (Agent-RLVR; paper 233).

    y ~ pi(. | x)                  G episodes; if none of them reaches the goal:
    y' ~ pi(. | x with guidance)   placed under x alone

Guidance is the advice of an expert on the task: a plan, the mistake that was made, where to look. It is in the prompt
only while an episode is drawn. The policy is trained on the plain prompt followed by the episode, which joins the group
that failed. It was not drawn from pi(. | x), so it has no behaviour log-probs. The environment is opened with the plain
problem. How well the policy uses guidance depends on the model; a new model learns to read it in the warm start
(`warm_start.context`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from models.agents.play.play import play
from models.base.bounds import Positive
from models.base.seeds import round_seed, second_sampling_seed
from models.method.episode import Episode, transcript
from models.method.problem import Problem, systems_of
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.episodes.solved import reached_goal
from models.parts.rollouts.episodes import Episodes, as_rollout
from models.text.encoding import Codec


@part("second_try")
class SecondTryEpisodes(Episodes):
    """Episodes, and guided ones for problems whose episodes all failed. Set under `rollouts:`."""

    retries: Positive = 2
    """Guided episodes per failed problem."""
    guidance: Annotated[str, Field(pattern=r"\{prompt\}")] = (
        "{prompt}\nA first try failed:\n{failed}\nThe answer is {answer}. Find the way to it."
    )
    """Guided prompt; `{prompt}` and `{answer}` are replaced by the problem's, `{failed}` by its first episode."""
    only_right: bool = True
    """Whether guided episodes that fail too are left out."""

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the number of episodes, plain and guided."""
        return self.group_size + self.retries

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Return the most tokens that a guided prompt adds to the question while it is drawn, [problems].

        A failed episode has at most `max_tokens`.
        """
        room = self.max_tokens if "{failed}" in self.guidance else 0
        guided = codec.prompts([self._guided_prompt(problem, "") for problem in problems], systems_of(problems))
        return [max(0, len(ids) + room - len(problem.tokens)) for ids, problem in zip(guided, problems, strict=True)]

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return episodes, then guided ones if all failed, prompt by prompt, [prompts * G and more]."""
        first = super().__call__(resources, problems, round_number)
        groups = [first[at : at + self.group_size] for at in range(0, len(first), self.group_size)]
        failed = [number for number, group in enumerate(groups) if not any(map(reached_goal, group))]
        guided = self._draw_guided(resources, problems, groups, failed, round_number)
        return [rollout for number, group in enumerate(groups) for rollout in (*group, *guided.get(number, ()))]

    def _draw_guided(
        self,
        resources: RunResources,
        problems: Sequence[Problem],
        groups: Sequence[Sequence[Rollout]],
        failed: Sequence[int],
        round_number: int,
    ) -> dict[int, list[Rollout]]:
        """Draw guided episodes; return them by the number of their problem, each under the plain prompt."""
        if not failed:
            return {}
        texts = [self._guided_prompt(problems[number], _text_of(groups[number][0])) for number in failed]
        systems = [problems[number].system for number in failed]
        guided_problems = [
            replace(problems[number], tokens=tuple(ids))
            for number, ids in zip(failed, resources.codec.prompts(texts, systems), strict=True)
        ]
        sampling = replace(self.sampling, samples=self.retries)
        seed = second_sampling_seed(round_seed(resources.seed, round_number))
        guided_episodes = play(resources.sampler(), resources.codec, self.episodes, guided_problems, sampling, seed)
        rollouts = {
            number: [self._under_plain_prompt(problems[number], number, episode) for episode in group]
            for number, group in zip(failed, guided_episodes, strict=True)
        }
        return {
            number: [rollout for rollout in group if not self.only_right or reached_goal(rollout)]
            for number, group in rollouts.items()
        }

    def _under_plain_prompt(self, problem: Problem, number: int, episode: Episode) -> Rollout:
        rollout = as_rollout(problem, number, episode, self.episodes.limits)
        explained = replace(rollout.source, origin="explained")
        return replace(rollout, problem=problem, behaviour_log_probs=None, source=explained)

    def _guided_prompt(self, problem: Problem, failed: str) -> str:
        prompt = self.guidance.replace("{prompt}", problem.prompt).replace("{answer}", problem.answer)
        return prompt.replace("{failed}", failed)


def _text_of(rollout: Rollout) -> str:
    return transcript(rollout.episode.turns) or rollout.text
