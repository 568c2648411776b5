"""Rollouts in flight: generation continues while the learner fits and weights change; tokens get at most k rounds old.

A prompt is requested at a position in the order of all prompts; its completions are a group. Before round n, positions
are requested until (n + k + 1) rounds' worth have been: this is how far `schedule.async: k` lets the engines be ahead.
A round takes the groups that ended first, as many as it has prompts. Version v of the weights is the result of v
rounds, so a token that it drew is n - v rounds old in round n. No token may be older than k: a round waits for the
groups that would be (`models.training.due`), or, if the recipe sets this, they are dropped, ended or not, and their
positions requested again with other seeds.

Every position that was requested is taken by one round, or is open. The open positions are part of the tally, and so of
every checkpoint. A run that resumes requests them again; the completions that were under way are lost and replaced by
others, so it does not end with the weights of a run that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType

import torch

from models.base.errors import UserError
from models.base.seeds import completion_seed, round_seed, seed_of
from models.engines.engine import CompletionRequest, Generated, Sampling
from models.engines.pumps import BackgroundEngines
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout, RolloutSource
from models.training.due import taken_in_time
from models.training.meter import Meter
from models.training.supply import Supply


@dataclass(eq=False)
class _Group:
    """The completions of the prompt at one position."""

    position: int
    attempt: int
    """Number of times that the position was dropped before."""
    problem: Problem
    numbers: tuple[int, ...]
    """The numbers by which its completions are requested, [G]."""
    completions: dict[int, Generated] = field(default_factory=dict)


class InFlight(Supply):
    """Supply of groups of completions that are generated while the policy changes.

    Args:
        resources: whose engine can serve; its learner's tally lists the open positions.
        problem_at: the prompt of a position.
        prompts: groups of a round.
        sampling: how each prompt is answered.
        most: greatest age of a token in rounds (k).
        drops: whether groups that would become older are dropped; else the round waits for them.
        rounds: number of rounds of the run; no more are requested.
        done: rounds that were done before.
        meter: records the generation.
    Raises:
        UserError: the engine cannot continue under new weights.
    """

    def __init__(
        self,
        resources: RunResources,
        problem_at: Callable[[int], Problem],
        prompts: int,
        sampling: Sampling,
        most: int,
        drops: bool,
        rounds: int,
        done: int,
        meter: Meter,
    ) -> None:
        self._resources, self._problem_at, self._meter = resources, problem_at, meter
        self._prompts, self._sampling, self._rounds = prompts, sampling, rounds
        self._most, self._drops = most, drops
        self._tally = resources.learner.tally
        self._pumps = BackgroundEngines(resources.sampler(), sampling, meter.device)
        if self._pumps.room < 1:
            raise UserError(
                f"schedule.async is {most}, but this engine cannot go on with completions under new weights: set it to "
                "1 or 0 (vLLM can where VLLM_ENABLE_V1_MULTIPROCESSING is 0)"
            )
        self._pumps.loaded(done)
        self._open: dict[int, _Group] = {}
        """Open groups by position."""
        self._group_of: dict[int, _Group] = {}
        """Groups by the number of each completion that has not ended."""
        self._ready: list[_Group] = []
        """Complete groups in the order in which they ended."""
        self._numbers = 0
        for position, attempt in self._tally.open:
            self._request_group(position, attempt)
        self._next_position = done * prompts + len(self._tally.open)

    def take(self, number: int) -> tuple[list[Rollout], dict[str, float]]:
        """See `Supply.take`."""
        while self._next_position < min(number + 1 + self._most, self._rounds) * self._prompts:
            self._request_group(self._next_position, 0)
            self._next_position += 1
        start_versions = self._pumps.begun()  # before what has ended: what ends in between is known by either
        self._collect(wait=False)
        last_rounds = {
            group: self._first_weights(group, start_versions, number) + self._most for group in self._open.values()
        }
        dropped = self._drop([group for group, last in last_rounds.items() if last < number]) if self._drops else 0
        while (chosen_groups := self._choose_groups(last_rounds, number)) is None:
            self._collect(wait=True)
        self._ready = [group for group in self._ready if group not in chosen_groups]
        for group in chosen_groups:
            del self._open[group.position]
        self._tally.open = [(group.position, group.attempt) for group in self._open.values()]
        rollouts = self._rollouts(chosen_groups)
        self._meter.generated(rollouts, self._pumps.worked())
        ages = torch.cat([ages_of(rollout, number) for rollout in rollouts])
        return rollouts, {
            "rollouts/age_mean": float(ages.double().mean()),
            "rollouts/age_max": float(ages.max()),
            "rollouts/dropped_by_age": float(dropped),
        }

    @contextmanager
    def handing_over(self, done: int) -> Iterator[None]:
        """See `Supply.handing_over`."""
        with self._pumps.paused():
            yield
            self._pumps.loaded(done)

    def __enter__(self) -> InFlight:
        self._pumps.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pumps.close()

    def _request_group(self, position: int, attempt: int) -> None:
        """Request completions of the prompt at `position`; the first time with the seeds of a synchronous run."""
        number, place = divmod(position, self._prompts)
        seed = round_seed(self._resources.seed, number)
        if attempt:
            seed = seed_of(seed, "requested again", attempt)
        problem = self._problem_at(position)
        requests = {
            self._numbers + member: CompletionRequest(
                problem.tokens, completion_seed(seed, place, member), self._sampling.max_tokens
            )
            for member in range(self._sampling.samples)
        }
        self._numbers += len(requests)
        self._open[position] = group = _Group(position, attempt, problem, tuple(requests))
        self._group_of |= dict.fromkeys(requests, group)
        self._pumps.request(requests)

    def _collect(self, wait: bool) -> None:
        """Record the completions that have ended."""
        for ended in self._pumps.ended(wait):
            group = self._group_of.pop(ended.number)
            group.completions[ended.number] = ended.generated
            if len(group.completions) == len(group.numbers):
                self._ready.append(group)

    def _first_weights(self, group: _Group, start_versions: Mapping[int, int], now: int) -> int:
        """Return the oldest weights that a token of the group was drawn by, or will have been.

        Args:
            start_versions: by number: the weights that each completion under way began with.
            now: the earliest weights that a completion that has not begun can begin with.
        """
        ended_versions = {number: completion.versions[0][1] for number, completion in group.completions.items()}
        first_versions = {**start_versions, **ended_versions}
        return min(first_versions.get(number, now) for number in group.numbers)

    def _choose_groups(self, last_rounds: Mapping[_Group, int], number: int) -> list[_Group] | None:
        """Return the groups that round `number` trains on; None: others have to end first.

        Args:
            last_rounds: the last round that may train on each group that is open.
        """
        if self._drops:
            return self._ready[: self._prompts] if len(self._ready) >= self._prompts else None
        places = taken_in_time(
            [last_rounds[group] for group in self._ready], list(last_rounds.values()), number, self._prompts
        )
        return None if places is None else [self._ready[place] for place in places]

    def _drop(self, old: Sequence[_Group]) -> int:
        """Drop groups, and request their prompts again. Returns how many."""
        for group in old:
            self._pumps.drop(group.numbers)
            for number in group.numbers:
                self._group_of.pop(number, None)
            self._request_group(group.position, group.attempt + 1)
        self._ready = [group for group in self._ready if group not in old]
        return len(old)

    def _rollouts(self, groups: Sequence[_Group]) -> list[Rollout]:
        """Return the groups' completions, those of one prompt next to each other, [groups * G]."""
        completions = [
            (place, group.problem, group.completions[name])
            for place, group in enumerate(groups)
            for name in group.numbers
        ]
        texts = self._resources.codec.text([generated.tokens for _, _, generated in completions])
        return [
            Rollout(
                problem,
                place,
                generated.tokens,
                generated.log_probs,
                text,
                generated.finished,
                source=RolloutSource(versions=generated.versions),
            )
            for (place, problem, generated), text in zip(completions, texts, strict=True)
        ]


def ages_of(rollout: Rollout, number: int) -> torch.Tensor:
    """Return the age of each token in round `number`, in rounds since the weights that drew it were made, [tokens]."""
    spans = [*rollout.source.versions, (len(rollout.completion), 0)]
    lengths = torch.tensor([after[0] - before[0] for before, after in pairwise(spans)])
    return torch.tensor([number - version for _, version in rollout.source.versions]).repeat_interleave(lengths)
