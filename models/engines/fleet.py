"""Several engines that act as one: they generate at once, and the completions do not depend on their number.

A completion depends on its request alone (`models.engines.engine.CompletionRequest`), so any engine may make it. The
last bits of its log-probs also depend on the rest of the batch. If engines make batch after batch, a batch therefore
stays together, and the fleet returns what one of them would, to the last bit. Every engine has a copy of the weights.
Each weight sync is numbered, and an answer from other weights than the last is rejected. An engine that breaks is
restarted, loads the weights and repeats the request (`models.engines.restart`), while the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor

from models.base.errors import UserError
from models.engines.decoding_loop import batches
from models.engines.engine import CompletionRequest, Engine, Generated, TokenSampling, check_ids, prompts_of
from models.engines.kept import WeightStore
from models.engines.restart import Restarting

Result = TypeVar("Result")
Share = Sequence[Sequence[int]]
"""Parts for one engine, each with the indices of rows that stay together."""


class Fleet(Engine):
    """Several engines of one kind that act as one engine; see `models.engines.engine.Engine`.

    If a call is interrupted, the work of the engines continues in the background, and the next call waits for it;
    `close` does not.

    Args:
        starts: opens each of the engines, on the same weights; at least one. They are started at once.
        dtype: data type of the computation.
        most: completions of a batch, which each of them makes at the same time (`decoding_loop.batches`); batches are
            cut further if there is not one for each engine. None: engines that add and drop completions as they run.
        kept: storage of the weights for them, in that dtype; None: in this process.

    Raises:
        UserError: one of `starts` raises it; in every call: `Restarting` raises it, or an engine answered with other
            weights than those of the last sync.
    """

    def __init__(
        self,
        starts: Sequence[Callable[[], Engine]],
        dtype: torch.dtype,
        most: int | None = None,
        kept: WeightStore | None = None,
    ) -> None:
        self.dtype = dtype
        self.most = most
        self.kept = kept = WeightStore(dtype) if kept is None else kept
        # A thread fixes torch's number of threads at its first query: `models.training.ahead` explains why it is
        # queried.
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

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        """See `Engine.complete`. Neighbours with the same prompt are sent to one engine."""
        check_ids(prompts_of(requests), self.vocabulary, self.longest, images=True)  # errors name places in all prompts
        prompts, rooms = [request.prompt for request in requests], [request.max_tokens for request in requests]
        flat_batches = [] if self.most is None else [_flat(batch) for batch in batches(requests, self.most)]
        if len(flat_batches) < len(self.engines):
            engine_shares = shares(groups_of(prompts), prompts, rooms, len(self.engines))
            return self._in_shares(
                engine_shares, lambda engine, share: engine.complete([requests[at] for at in _flat(share)], drawing)
            )
        return self._in_shares(
            shares(flat_batches, prompts, rooms, len(self.engines)),
            lambda engine, share: [
                completion
                for batch in share
                for completion in engine.complete([requests[place] for place in batch], drawing)
            ],
        )

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        joined = [[*prompt, *ids] for prompt, ids in zip(prompts, completions, strict=True)]
        check_ids(joined, self.vocabulary, self.longest, images=True)
        engine_shares = shares(groups_of(prompts), prompts, [len(ids) for ids in completions], len(self.engines))
        return self._in_shares(
            engine_shares,
            lambda engine, share: engine.score(
                [prompts[place] for place in _flat(share)], [completions[place] for place in _flat(share)]
            ),
        )

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int = 0) -> None:
        """See `Engine.load`. The engines use the fleet's own count as version, which is unique for each sync."""
        self.kept.keep(weights, self.kept.version + 1)
        self._at_once(dict.fromkeys(range(len(self.engines)), Restarting.take_kept))
        self.version = version

    def close(self) -> None:
        """See `Engine.close`. Closing twice is allowed; requests in progress fail."""
        errors = []
        for engine in self.engines:
            engine.closed = True  # all of them first: an engine that breaks while the others end is not restarted
        for engine in self.engines:
            try:
                engine.close()
            except Exception as error:
                errors.append(error)
        for thread in self.threads:
            thread.shutdown(wait=True, cancel_futures=True)
        if errors:
            raise errors[0]

    def _in_shares(
        self, engine_shares: Sequence[Share], request: Callable[[Engine, Share], list[Result]]
    ) -> list[Result]:
        """Return the results of each engine for its share, in the order of the places."""

        def call_for(share: Share) -> Callable[[Restarting], list[Result]]:
            return lambda engine: request(engine, share)

        results = self._at_once({number: call_for(share) for number, share in enumerate(engine_shares) if share})
        ordered = {
            place: part
            for number, parts in results.items()
            for place, part in zip(_flat(engine_shares[number]), parts, strict=True)
        }
        return [ordered[place] for place in range(len(ordered))]

    def _at_once(self, calls: dict[int, Callable[[Restarting], Result]]) -> dict[int, Result]:
        """Return the results of the engines with these numbers, all called at once; the first error ends the call."""
        futures = {
            number: self.threads[number].submit(self._checked_result, number, call) for number, call in calls.items()
        }
        done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        return {number: future.result() for number, future in futures.items()}

    def _checked_result(self, number: int, call: Callable[[Restarting], Result]) -> Result:
        engine = self.engines[number]
        result = call(engine)
        if engine.version != self.kept.version:
            raise UserError(
                f"engine {number + 1} of {len(self.engines)} has the weights of hand-over {engine.version}, but those "
                f"of hand-over {self.kept.version} were given to it: its output belongs to another policy"
            )
        return result


def groups_of(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Group adjacent rows with the same prompt, which is read once for all of them, [groups][indices]."""
    return [list(same) for _, same in groupby(range(len(prompts)), key=lambda place: prompts[place])]


def shares(
    parts: Sequence[Sequence[int]], prompts: Sequence[Sequence[int]], lengths: Sequence[int], count: int
) -> list[Share]:
    """Divide parts among `count` engines by cost, [count]; some get none if there are fewer parts.

    The most expensive parts are assigned first, each to the engine with the least work: no engine gets more than
    the mean and one part.

    Args:
        parts: indices of rows that stay together, for each part.
        prompts: token ids of each row, [rows] lists.
        lengths: largest number of tokens that follow it, [rows].
        count: number of engines.
    """
    costs = [
        sum(len(prompt) for prompt, _ in groupby(prompts[place] for place in part))
        + sum(lengths[place] for place in part)
        for part in parts
    ]
    assigned: list[list[Sequence[int]]] = [[] for _ in range(count)]
    loads = [0] * count
    for number in sorted(range(len(parts)), key=lambda number: -costs[number]):
        least = min(range(count), key=loads.__getitem__)
        loads[least] += costs[number]
        assigned[least].append(parts[number])
    return [sorted(share, key=min) for share in assigned]


def _flat(share: Share) -> list[int]:
    return [place for part in share for place in part]


def _close_started(starting: Future[Restarting]) -> None:
    """Close an engine that started although another did not."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()
