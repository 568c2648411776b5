"""Requests, completions and weights as plain arrays, for processes that exchange them.

Arrays are sent without copying each object. A list of lists becomes one array of all its numbers and one of lengths.
Tensors become numpy arrays; bfloat16, which numpy does not support, is stored as its bits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.engines.decoding_loop import Switched
from models.engines.engine import CompletionRequest, Generated

PART_BYTES = 256 << 20
"""Bytes of weights per transfer: large enough that the number of transfers costs nothing, small against a model."""


@dataclass(frozen=True)
class Rows:
    """Lists of numbers of different lengths, as two arrays."""

    values: NDArray[Any]
    """Numbers of all rows, concatenated, [numbers]."""
    lengths: NDArray[np.int64]
    """Length of each row, [rows]."""

    @staticmethod
    def of(rows: Iterable[Sequence[Any] | NDArray[Any]], dtype: Any = np.int64) -> Rows:
        """Build the arrays from rows of numbers, in `dtype`."""
        arrays = [np.asarray(row, dtype) for row in rows]
        return Rows(np.concatenate([np.empty(0, dtype), *arrays]), np.array([len(row) for row in arrays], np.int64))

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Iterate over the rows as views."""
        ends = accumulate(self.lengths.tolist(), initial=0)
        return (self.values[start:end] for start, end in pairwise(ends))

    def lists(self) -> list[list[Any]]:
        """Return each row as a list of Python numbers."""
        return [row.tolist() for row in self]


@dataclass(frozen=True)
class RequestArrays:
    """The fields of many requests, without `actions`, as arrays; see `models.engines.engine.CompletionRequest`."""

    prompts: Rows
    """Prompts, once for neighbours with the same prompt, [prompts]."""
    prompt: NDArray[np.int64]
    """Index of each request's prompt, [requests]."""
    seeds: NDArray[np.int64]
    max_tokens: NDArray[np.int64]
    stops: Rows

    @staticmethod
    def of(requests: Sequence[CompletionRequest]) -> RequestArrays:
        """Build the arrays from requests."""
        prompts: list[Sequence[int]] = []
        which = []
        for request in requests:
            if not prompts or prompts[-1] != request.prompt:
                prompts.append(request.prompt)
            which.append(len(prompts) - 1)
        return RequestArrays(
            Rows.of(prompts),
            np.array(which, np.int64),
            np.array([request.seed for request in requests], np.int64),
            np.array([request.max_tokens for request in requests], np.int64),
            Rows.of(request.stops for request in requests),
        )

    def requests(self) -> list[CompletionRequest]:
        """Return the requests in the arrays; adjacent requests with the same prompt share one list."""
        prompts = self.prompts.lists()
        rest = zip(self.prompt.tolist(), self.seeds.tolist(), self.max_tokens.tolist(), self.stops.lists(), strict=True)
        return [CompletionRequest(prompts[number], seed, most, tuple(stops)) for number, seed, most, stops in rest]


@dataclass(frozen=True)
class GeneratedArrays:
    """The fields of many completions as arrays; see `models.engines.engine.Generated`."""

    tokens: Rows
    log_probs: Rows | None
    """None if not requested."""
    finished: NDArray[np.bool_]
    by_first: Rows | None
    """Turns of completions that two voices wrote (`models.engines.decoding_loop.Switched`)."""
    versions: Rows
    """First token and version of each span, concatenated."""

    @staticmethod
    def of(completions: Sequence[Generated]) -> GeneratedArrays:
        """Build the arrays from completions; either all of them have log-probs or none has."""
        log_probs = [made.log_probs.numpy() for made in completions if made.log_probs is not None]
        turns = [made.by_first for made in completions if isinstance(made, Switched)]
        return GeneratedArrays(
            Rows.of(made.tokens for made in completions),
            Rows.of(log_probs, np.float32) if log_probs else None,
            np.array([made.finished for made in completions], np.bool_),
            Rows.of(turns, np.bool_) if turns else None,
            Rows.of([number for span in made.versions for number in span] for made in completions),
        )

    def completions(self) -> list[Generated]:
        """Return the completions in the arrays."""
        tokens = [tuple(row) for row in self.tokens.lists()]
        log_probs: list[Tensor | None] = [None] * len(tokens)
        if self.log_probs is not None:
            log_probs = [torch.from_numpy(row.copy()) for row in self.log_probs]
        versions = [tuple(zip(row[::2], row[1::2], strict=True)) for row in self.versions.lists()]
        made = zip(tokens, log_probs, self.finished.tolist(), strict=True)
        if self.by_first is None:
            return [Generated(*each, versions=spans) for each, spans in zip(made, versions, strict=True)]
        turns = [tuple(row) for row in self.by_first.lists()]
        return [Switched(*each, by_first) for each, by_first in zip(made, turns, strict=True)]


@dataclass(frozen=True)
class WeightArray:
    """A named weight as an array."""

    name: str
    bits: NDArray[Any]
    dtype: str
    """Name of the torch dtype."""

    @staticmethod
    def of(name: str, weight: Tensor, dtype: torch.dtype) -> WeightArray:
        """Build the array from a weight; a floating-point weight is rounded to `dtype`."""
        rounded = weight.detach().to("cpu", dtype if weight.is_floating_point() else weight.dtype).contiguous()
        whole = rounded.view(torch.int16) if rounded.dtype == torch.bfloat16 else rounded
        return WeightArray(name, whole.numpy(), str(rounded.dtype).removeprefix("torch."))

    def tensor(self) -> Tensor:
        """Return the weight as a tensor. It shares the array's memory, possibly read-only, so never write to it."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            tensor = torch.from_numpy(self.bits)
        return tensor.view(torch.bfloat16) if self.dtype == "bfloat16" else tensor


def weight_parts(weights: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> Iterator[list[WeightArray]]:
    """Split weights into parts of about PART_BYTES each; only one part is in memory at a time."""
    part: list[WeightArray] = []
    for name, weight in weights:
        part.append(WeightArray.of(name, weight, dtype))
        if sum(array.bits.nbytes for array in part) >= PART_BYTES:
            yield part
            part = []
    if part:
        yield part
