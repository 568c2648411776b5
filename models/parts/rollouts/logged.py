"""Episodes from the data instead of played ones, for offline learning over turns; and candidates at their states.

    logged               h_1 a_1 h_2 a_2 ...    demonstrations, sound and flawed, every turn of the policy trained on
    logged_candidates    the same without loss, and N turns of the current policy at each h_t

Offline RL over turns learns values of the logged actions and prefers those with good outcomes: synthetic dialogues
(imagination engine; paper 54), the offline stages of device control (DigiRL and Digi-Q; papers 116 and 123). With
candidates the choice is among turns that the policy would write (Digi-Q's best of N), or that experts propose, here
temperatures of one policy (mixture of experts for dialogue management; paper 45). Evaluations play episodes.

With candidates, the critic of logged turns (reward `action_value`) is written into the policy's model folder, so that
strategies of evaluation can choose by it (`--strategy best_of_steps --set strategy.scorer.name=critic`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from models.agents.play.logged import logged_episodes
from models.base.bounds import Positive, Temperature
from models.base.seeds import completion_seed, round_seed
from models.engines.engine import CompletionRequest, TokenSampling
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.problem_rows import known_answers
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutEpisode
from models.parts.rollouts.episodes import Episodes
from models.reward_models.critic.action_values import ACTION_VALUES, ActionValues, save_action_values
from models.text.encoding import Codec


@part("logged")
class Logged(Episodes):
    """Episodes from the data. Set under `rollouts:`; the environment is that of evaluations."""

    draws = False
    reads: Literal["demonstrations"] = "demonstrations"
    """Rows of the data that hold the episodes."""

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the largest number of episodes that the data hold for one of `problems`."""
        return int(known_answers(problems).max()) if problems else 1

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return the episodes about `problems`, those of one prompt next to each other, [episodes]."""
        known = [(number, problem, answer) for number, problem in enumerate(problems) for answer in problem.known]
        groups, answered_problems, answers = (list(column) for column in zip(*known, strict=True))
        rollouts = logged_episodes(resources.codec, self.role, answered_problems, groups, answers)
        kept = [rollout for rollout in rollouts if len(rollout.completion) <= self.max_tokens]
        return [rollout if all(rollout.written) else replace(rollout, trained=rollout.written) for rollout in kept]


@part("logged_candidates")
class LoggedCandidates(Logged):
    """Episodes from the data, without loss, and the policy's candidate turns at their states. Set under `rollouts:`."""

    draws = True
    candidates: Positive = 4
    """Turns that are drawn at each state, by each expert."""
    experts: tuple[Temperature, ...] = (1.0,)
    """Temperatures of the experts, one after the other."""

    def export(self, learner: Learner, codec: Codec, start: Path, folder: Path) -> None:
        """Write the critic of logged turns into the policy's folder. See `Rollouts.export`.

        A critic whose weights are split over several learners is not written.
        """
        super().export(learner, codec, start, folder)
        critic = learner.companions.get(ACTION_VALUES)
        if critic is not None and isinstance(critic.model, ActionValues) and learner.ranks.count == 1:
            save_action_values(critic.model, folder / ACTION_VALUES)

    def largest_group(self, problems: Sequence[Problem] = ()) -> int:
        """Return the largest number of candidates of a state or episodes of a problem."""
        return max(super().largest_group(problems), self.candidates * len(self.experts))

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return the episodes, then the candidates, those of one state next to each other, [episodes + candidates]."""
        episodes = super().__call__(resources, problems, round_number)
        states = [(rollout, turn.start) for rollout in episodes for turn in rollout.episode.turns]
        seed = round_seed(resources.seed, round_number)
        prompts = [(*rollout.problem.tokens, *rollout.completion[:start]) for rollout, start in states]
        candidates: list[list[Rollout]] = [[] for _ in states]
        for expert, temperature in enumerate(self.experts):
            requests = [
                CompletionRequest(
                    prompt, completion_seed(seed, place, expert * self.candidates + number), self.max_tokens - start
                )
                for place, (prompt, (_, start)) in enumerate(zip(prompts, states, strict=True))
                for number in range(self.candidates)
            ]
            completions = resources.sampler().complete(
                requests, TokenSampling(temperature=temperature, top_p=self.top_p, top_k=self.top_k)
            )
            texts = resources.codec.text([completion.tokens for completion in completions])
            for index, (completion, text) in enumerate(zip(completions, texts, strict=True)):
                place = index // self.candidates
                rollout, start = states[place]
                problem = replace(rollout.problem, tokens=prompts[place])
                group = len(problems) + place
                candidates[place].append(
                    Rollout(
                        problem,
                        group,
                        completion.tokens,
                        None,
                        text,
                        completion.finished,
                        episode=RolloutEpisode(history=start),
                    )
                )
        without_loss = [replace(rollout, trained=(False,) * len(rollout.completion)) for rollout in episodes]
        return without_loss + [rollout for of_state in candidates for rollout in of_state]
