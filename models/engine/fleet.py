"""Several engines behind one: they generate at once, and nobody can tell from the completions how many there are.

A completion depends on its ask alone (`models.engine.engine.Ask`), so that any engine may make it. In their last bits
its log-probs depend on what was made beside it, too: where engines make batch after batch, a batch stays together, and
what the fleet says is what one of them would, to the last bit. Every engine has a copy of the weights; each hand-over
is numbered, and an answer from other weights than the last is no answer. An engine that breaks is started anew, takes
the weights and is asked again (`models.engine.restart`), while the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor

from models.engine.decoding_loop import batches
from models.engine.engine import Ask, Drawing, Engine, Generated, check_ids, prompts_of
from models.engine.kept import Kept
from models.engine.restart import Restarting
from models.errors import UserError

Result = TypeVar("Result")
Share = Sequence[Sequence[int]]
"""Places of rows in parts that stay together."""


class Fleet(Engine):
    """Engines of one kind, each in a place of its own; see `models.engine.engine.Engine`.

    Where a call is interrupted, what the engines were at goes on behind its back, and the next call waits for it;
    `close` does not.

    Args:
        starts: opens each of the engines afresh, on the same weights; at least one. They are started at once.
        dtype: what they compute in.
        most: completions of a batch, which each of them makes side by side (`decoding_loop.batches`); batches are cut
            further where there is not one for each engine. None: engines that add and drop completions on the way.
        kept: where the weights are kept for them, in that dtype; None: in this process.

    Raises:
        UserError: one of `starts` says so; in every call: what `Restarting` says, or an engine answered with other
            weights than those that were handed over last.
    """

    def __init__(
        self,
        starts: Sequence[Callable[[], Engine]],
        dtype: torch.dtype,
        most: int | None = None,
        kept: Kept | None = None,
    ) -> None:
        self.dtype = dtype
        self.most = most
        self.kept = kept = Kept(dtype) if kept is None else kept
        # A thread takes torch's number of threads at its first question for it: `models.loop.ahead` says why it asks.
        self.threads = [
            ThreadPoolExecutor(1, f"engine-{number}", initializer=torch.get_num_threads)
            for number in range(1, len(starts) + 1)
        ]
        starting = [
            thread.submit(Restarting, start, dtype, kept) for thread, start in zip(self.threads, starts, strict=True)
        ]
        try:
            self.engines = [future.result() for future in starting]
        except BaseException:
            for future in starting:
                future.add_done_callback(_close_started)
            for thread in self.threads:
                thread.shutdown(wait=False, cancel_futures=True)
            raise
        self.vocabulary, self.longest = self.engines[0].vocabulary, self.engines[0].longest

    def members(self) -> Sequence[Engine]:
        """See `Engine.members`."""
        return self.engines

    def each(self, asks: Sequence[Ask], drawing: Drawing) -> list[Generated]:
        """See `Engine.each`. Neighbours with the same prompt go to one engine."""
        check_ids(prompts_of(asks), self.vocabulary, self.longest)  # named by their place among all of them
        prompts, rooms = [ask.prompt for ask in asks], [ask.max_tokens for ask in asks]
        cut = [] if self.most is None else [_flat(batch) for batch in batches(asks, self.most)]
        if len(cut) < len(self.engines):
            shared = shares(groups_of(prompts), prompts, rooms, len(self.engines))
            return self._in_shares(
                shared, lambda engine, share: engine.each([asks[at] for at in _flat(share)], drawing)
            )
        return self._in_shares(
            shares(cut, prompts, rooms, len(self.engines)),
            lambda engine, share: [
                made for batch in share for made in engine.each([asks[place] for place in batch], drawing)
            ],
        )

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        joined = [[*prompt, *ids] for prompt, ids in zip(prompts, completions, strict=True)]
        check_ids(joined, self.vocabulary, self.longest)
        shared = shares(groups_of(prompts), prompts, [len(ids) for ids in completions], len(self.engines))
        return self._in_shares(
            shared,
            lambda engine, share: engine.score(
                [prompts[place] for place in _flat(share)], [completions[place] for place in _flat(share)]
            ),
        )

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """See `Engine.load`. The engines know the weights by the fleet's own count: no two hand-overs have the same."""
        self.kept.keep(weights, self.kept.version + 1)
        self._at_once(dict.fromkeys(range(len(self.engines)), Restarting.take_kept))
        self.version = version

    def close(self) -> None:
        """See `Engine.close`. Closing twice does no harm; what an engine has under way fails."""
        errors = []
        for engine in self.engines:
            engine.closed = True  # all of them first: what breaks while the others end is not started anew
        for engine in self.engines:
            try:
                engine.close()
            except Exception as error:
                errors.append(error)
        for thread in self.threads:
            thread.shutdown(wait=True, cancel_futures=True)
        if errors:
            raise errors[0]

    def _in_shares(self, shared: Sequence[Share], ask: Callable[[Engine, Share], list[Result]]) -> list[Result]:
        """What each engine says to its share, in the order of the places."""

        def asking(share: Share) -> Callable[[Restarting], list[Result]]:
            return lambda engine: ask(engine, share)

        said = self._at_once({number: asking(share) for number, share in enumerate(shared) if share})
        ordered = {
            place: part
            for number, parts in said.items()
            for place, part in zip(_flat(shared[number]), parts, strict=True)
        }
        return [ordered[place] for place in range(len(ordered))]

    def _at_once(self, calls: dict[int, Callable[[Restarting], Result]]) -> dict[int, Result]:
        """What the engines of these numbers say, all asked at once; the first error ends it."""
        asked = {number: self.threads[number].submit(self._one, number, call) for number, call in calls.items()}
        done, _ = wait(asked.values(), return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        return {number: future.result() for number, future in asked.items()}

    def _one(self, number: int, call: Callable[[Restarting], Result]) -> Result:
        engine = self.engines[number]
        said = call(engine)
        if engine.version != self.kept.version:
            raise UserError(
                f"engine {number + 1} of {len(self.engines)} has the weights of hand-over {engine.version}, but those "
                f"of hand-over {self.kept.version} were given to it: what it says is of another policy"
            )
        return said


def groups_of(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Places of neighbours with the same prompt, which is read once for all of them."""
    return [list(same) for _, same in groupby(range(len(prompts)), key=lambda place: prompts[place])]


def shares(
    parts: Sequence[Sequence[int]], prompts: Sequence[Sequence[int]], lengths: Sequence[int], count: int
) -> list[Share]:
    """The parts that each of `count` engines gets, [count]; some get none where there are fewer.

    The dearest go first, each to whoever has least: no engine gets more than a fair share and one part.

    Args:
        parts: places of rows that stay together.
        prompts: token ids of each row, [rows] lists.
        lengths: tokens that follow it, at most, [rows].
        count: engines.
    """
    costs = [
        sum(len(prompt) for prompt, _ in groupby(prompts[place] for place in part))
        + sum(lengths[place] for place in part)
        for part in parts
    ]
    given: list[list[Sequence[int]]] = [[] for _ in range(count)]
    loads = [0] * count
    for number in sorted(range(len(parts)), key=lambda number: -costs[number]):
        least = min(range(count), key=loads.__getitem__)
        loads[least] += costs[number]
        given[least].append(parts[number])
    return [sorted(share, key=min) for share in given]


def _flat(share: Share) -> list[int]:
    return [place for part in share for place in part]


def _close_started(starting: Future[Restarting]) -> None:
    """Close an engine that came although another did not."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()
