"""The user's own agent programs, which call the policy over OpenAI's protocol: G runs of the program per prompt.

A program is a command, started again for every episode, or a Python function. It receives the address of the policy
(`models.agents.gateway.runners`), calls the policy as often as it wants, and returns a reward or an answer. Every call
is recorded as ids with their log-probs, and trained on once; the tokens that calls share are read once. An episode may
be several sequences; rewards, group means and losses see the episode (`models.method.episode_parts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, cast

from pydantic import Field

from models.agents.gateway.agents import AgentPrograms, ProgramEpisode
from models.base.bounds import Positive
from models.base.errors import UserError
from models.base.seeds import round_seed
from models.base.source_code import GivenFile, SourceCode, read_source, texts_in_command
from models.method.environment import EpisodeSettings
from models.method.episode import EpisodeLimits, Rule
from models.method.episode_parts import whole_of
from models.method.problem import Problem
from models.method.recipe_paths import Command, RecipePath
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.episodes import as_rollout
from models.parts.rollouts.sample import Sample


@part("program")
class ProgramRollouts(Sample):
    """Calls of an agent program. Set under `rollouts:`."""

    renamed: ClassVar[Mapping[str, str]] = {"tells_answer": "shows_answer"}
    command: Command = ()
    """The program and its arguments, started again for every episode. The content of the files that it names counts;
    that of the files that these import does not."""
    path: RecipePath = ""
    """Alternative to a command: a Python file with a function `run(task, base_url, api_key)`."""
    at_once: Positive = 16
    """Programs that run in parallel."""
    calls: Positive = 8
    """Most completions that an episode may request. A whole conversation, with the messages between completions, has at
    most `max_tokens` beyond the length of the problem's own prompt."""
    call_tokens: Positive | None = None
    """Longest completion of a call, in tokens; null: the rest of the episode's tokens."""
    seconds: Annotated[float, Field(gt=0, le=86400)] = 60.0
    """Time limit of a program from an answer to its next call or its end, seconds."""
    when_stuck: Rule = "masked"
    """Treatment of an episode whose program took too long or failed: kept unchanged, counted as wrong, or masked (left
    out of the loss)."""
    shows_answer: bool = False
    """Whether a program receives the problem's answer, so that it can compute the value of its episode itself."""

    def __post_init__(self) -> None:
        source = read_source(Path(self.path), "rollouts.path") if self.path else None
        object.__setattr__(self, "_source", source)
        object.__setattr__(self, "_texts", texts_in_command(self.command))

    @property
    def given(self) -> tuple[GivenFile, ...]:
        """File of the function, or files that the command names, with their content when the recipe was read."""
        texts: tuple[GivenFile, ...] = vars(self)["_texts"]
        return texts if self._source_code is None else (self._source_code, *texts)

    def try_out(self) -> None:
        """Check that there is something to run.

        Raises:
            UserError: neither a command nor a file is named, or both, or the file has no such function.
        """
        if bool(self.command) == bool(self.path):
            raise UserError("rollouts: a program is a command or a path to a file with a function `run`; name one")
        if self._source_code is not None and not callable(vars(self._source_code.load()).get("run")):
            raise UserError(f"rollouts.path: {self.path}: no function is called run")

    @property
    def several_sequences(self) -> bool:
        """Whether an episode may be several sequences: true, because a program may use several contexts."""
        return True

    @property
    def episodes(self) -> EpisodeSettings:
        """Settings of the episodes, used in evaluations too."""
        programs = AgentPrograms(
            command=self.command, source=self._source_code, side_by_side=self.at_once, shows_answer=self.shows_answer
        )
        limits = EpisodeLimits(
            turns=self.calls,
            turn_tokens=self.call_tokens,
            seconds=self.seconds,
            at_last_turn="kept",
            when_stuck=self.when_stuck,
        )
        return EpisodeSettings(environment=programs, limits=limits, role="user")

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Run episodes about `problems`; return those of one prompt next to each other, [prompts * G, or fewer]."""
        settings, seed = self.episodes, round_seed(resources.seed, round_number)
        driven = settings.environment.drive(
            resources.sampler(), resources.codec, settings.limits, problems, self.sampling, seed
        )
        assert driven is not None, "programs ask by themselves"
        made: list[Rollout] = []
        for group, episodes in enumerate(driven):
            for episode in episodes:
                made += _rollouts(problems[group], group, cast(ProgramEpisode, episode), settings.limits)
        if not made:
            raise UserError(f"rollouts {self.name}: no program of round {round_number} sent a request to the policy")
        return made

    @property
    def _source_code(self) -> SourceCode | None:
        source: SourceCode | None = vars(self)["_source"]
        return source


def _rollouts(problem: Problem, group: int, episode: ProgramEpisode, limits: EpisodeLimits) -> list[Rollout]:
    """Return the episode as a list of one rollout; empty if it made no call."""
    parts = []
    for chain in episode.chains:
        alone = replace(episode, tokens=chain.tokens, log_probs=chain.log_probs, turns=chain.turns, prompt=chain.prompt)
        part = as_rollout(problem, group, alone, limits)
        parts.append(replace(part, episode=replace(part.episode, history=chain.history)))
    return [whole_of(parts)] if parts else []
