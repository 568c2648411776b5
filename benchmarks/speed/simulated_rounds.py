"""Rounds of a training on a simulated clock: engines that step, a learner that fits, lengths as they were measured.

It covers settings that the machine at hand cannot: any number of engines, which do not use the learner's processor. The
rules are those of the loop: in step (0), one round ahead (1), in flight (`models.training.in_flight`; 2 and more).
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from models.training.due import taken_in_time


@dataclass(frozen=True)
class Plant:
    """Simulated hardware of a training."""

    engines: int
    room: int
    """Number of completions that each engine writes in parallel."""
    step: float
    """Seconds of an engine's step, independent of its load."""
    each: float
    """Seconds that each completion adds to the step."""
    learn: float
    """Seconds that the learner takes for a round."""
    prompts: int
    """Groups of a round."""


@dataclass(eq=False)
class _Group:
    lengths: Sequence[int]
    left: int
    """Completions that have not ended."""
    begun: int | None = None
    """Round whose weights its first token was drawn by."""
    dropped: bool = False


@dataclass
class _Engine:
    writing: list[tuple[int, _Group]] = field(default_factory=list)
    """Remaining tokens of each completion."""
    stepping: bool = False


@dataclass(frozen=True)
class Simulated:
    """Result of a simulation."""

    seconds: float
    """Mean seconds of a round."""
    dropped: int
    """Number of groups that grew too old."""
    length: float
    """Mean tokens of a completion that was trained on: dropped ones are the longest."""
    idle: float
    """Share of the time in which the engines were idle."""


def simulate(
    plant: Plant, lengths: Sequence[Sequence[int]], k: int, rounds: int, *, drops: bool, seed: int = 0
) -> Simulated:
    """Simulate `rounds` rounds with `schedule.async: k`; the first k + 1 are not counted.

    Args:
        plant: what it is run on.
        lengths: tokens of completions, [groups][G], of which each prompt has those of one group, drawn at random.
        k: rounds that a token may be old.
        rounds: more than k + 1.
        drops: groups older than k, 2 or more, are dropped; else the round waits for them.
        seed: seed of the draws.
    """
    draw = random.Random(seed)
    engines = [_Engine() for _ in range(plant.engines)]
    waiting: deque[tuple[int, _Group]] = deque()
    open_groups: list[_Group] = []
    ready: list[_Group] = []
    events: list[tuple[float, int]] = []
    """Times at which an engine, by its number, has stepped, or the learner (-1) is done."""
    requests = done = dropped = 0
    now = busy = began = busy_before = 0.0
    learning = False
    trained_lengths: list[int] = []

    def request_group() -> None:
        group_lengths = draw.choice(lengths)
        group = _Group(group_lengths, len(group_lengths))
        open_groups.append(group)
        waiting.extend((length, group) for length in group_lengths)

    def allowed_requests() -> int:
        """Return the number of groups that may have been requested."""
        return min(rounds, done + 1 + (int(learning) if k == 1 else k)) * plant.prompts

    def next_groups() -> list[_Group]:
        """Return the groups that the next round trains on; none: others have to end first."""
        if k < 2 or drops:
            return ready[: plant.prompts] if len(ready) >= plant.prompts else []
        due_rounds = {group: (done if group.begun is None else group.begun) + k for group in open_groups}
        places = taken_in_time([due_rounds[group] for group in ready], list(due_rounds.values()), done, plant.prompts)
        return [ready[place] for place in places or ()]

    while done < rounds:
        while requests < allowed_requests():
            request_group()
            requests += 1
        if not learning and (selected := next_groups()):
            for group in selected:
                open_groups.remove(group)
                ready.remove(group)
                trained_lengths += group.lengths
            learning = True
            heapq.heappush(events, (now + plant.learn, -1))
            continue
        for number, engine in enumerate(engines):
            while waiting and len(engine.writing) < plant.room:
                length, group = waiting.popleft()
                if not group.dropped:
                    group.begun = done if group.begun is None else group.begun
                    engine.writing.append((length, group))
            if engine.writing and not engine.stepping:
                engine.stepping = True
                seconds = plant.step + plant.each * len(engine.writing)
                busy += seconds
                heapq.heappush(events, (now + seconds, number))
        now, number = heapq.heappop(events)
        if number >= 0:
            engine = engines[number]
            engine.stepping = False
            remaining = []
            for length, group in engine.writing:
                if length > 1 and not group.dropped:
                    remaining.append((length - 1, group))
                elif not group.dropped:
                    group.left -= 1
                    if not group.left:
                        ready.append(group)
            engine.writing = remaining
            continue
        if k == 1 and any(engine.writing for engine in engines):
            # weights wait for the round that is being sampled
            heapq.heappush(events, (min(event[0] for event in events) + 1e-9, -1))
            continue
        learning, done = False, done + 1
        if k > 1 and drops:
            for group in [group for group in open_groups if group.begun is not None and group.begun < done - k]:
                group.dropped = True
                open_groups.remove(group)
                if group in ready:
                    ready.remove(group)
                request_group()
                dropped += 1
        if done == k + 1:
            began, busy_before = now, busy
    busy_seconds = (busy - busy_before) / plant.engines
    return Simulated(
        (now - began) / (rounds - k - 1),
        dropped,
        sum(trained_lengths) / len(trained_lengths),
        1.0 - busy_seconds / (now - began),
    )
