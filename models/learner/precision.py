"""Choice of the faster precision for a model on this machine: plain float32, or bfloat16 products under autocast.

A CPU without products in bfloat16 emulates them, at a tenth of the speed: float32 is chosen there, without trial. On
one that has them a wide model is several times as fast, and a narrow one may lose by the casts: a short measurement of
the learner's own forward and backward pass decides. The choice is kept on disk, so that a run that is resumed or
repeated computes the same as before. Weights and optimiser are float32 either way, as are softmaxes, norms and sums.
"""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import nn

from models.base.atomic_write import write_file
from models.base.device import has_gpu
from models.base.processor import processor
from models.learner.eval_mode import in_eval_mode
from models.learner.log_probs import completion_log_probs, plain_inner, row_states, use_packed_attention
from models.learner.packing import Sequences, packed_row

_LOG = logging.getLogger("rewardflow.learner")
Precision = Literal["float32", "bfloat16"]

PROMPT, COMPLETION, GROUP = 128, 64, 8
"""Tokens of the row that is timed: one prompt and its completions."""
REPEATS = 3
LONGEST = 15.0
"""Seconds of measurement after which no further pass is repeated."""
HOPELESS = 3.0
"""bfloat16 is rejected if its warm-up pass takes this many times as long as that of float32, ..."""
HOPELESS_SECONDS = 1.0
"""... and takes at least this many seconds: shorter passes are dominated by the set-up of the kernels."""
LEAST_GAIN = 1.15
"""bfloat16 is chosen if it is faster by this factor; below it, exactness is preferred."""


@dataclass(frozen=True)
class PrecisionTiming:
    """Measured seconds of one forward and backward pass in each precision."""

    float32: float
    bfloat16: float

    @property
    def precision(self) -> Precision:
        """The precision to train in: bfloat16 if it is faster by `LEAST_GAIN`."""
        return "bfloat16" if self.float32 >= LEAST_GAIN * self.bfloat16 else "float32"


def autocast_of(precision: Precision) -> torch.dtype | None:
    """Return the autocast dtype of a precision; None without autocast."""
    return torch.bfloat16 if precision == "bfloat16" else None


def chosen_precision(setting: Precision | Literal["auto"], model: nn.Module, folder: Path) -> Precision:
    """Return the precision of `model` on this machine: that of the recipe, or of `fastest_precision` for `auto`."""
    return fastest_precision(model, folder) if setting == "auto" else setting


def autocast_rule(setting: Precision | Literal["auto"], folder: Path) -> Callable[[nn.Module], torch.dtype | None]:
    """Return a function that maps a model to its autocast dtype on this machine; see `chosen_precision`."""
    return lambda model: autocast_of(chosen_precision(setting, model, folder))


def fastest_precision(model: nn.Module, folder: Path) -> Precision:
    """Return the precision of `model` on this machine for `auto`: fixed, given by the device, or measured once.

    A precision that `fix_precision` fixed for models of this shape is used first. Otherwise it is bfloat16 on a GPU and
    float32 on a CPU that emulates bfloat16. On any other CPU the faster one is measured once and stored.

    Args:
        model: a policy or reward model; its gradients are cleared, nothing else of it changes.
        folder: folder in which choices are stored.

    Raises:
        UserError: the model cannot read packed rows.
    """
    with suppress(OSError, ValueError, KeyError):
        if (fixed := json.loads(_fixed_file(folder, shape_of(model)).read_text())["fixed"]) in get_args(Precision):
            return cast(Precision, fixed)
    if has_gpu():  # wherever the model is now: it learns there
        return "bfloat16"
    shapes = _shapes(model)
    threads = torch.get_num_threads()
    key = sha256(repr((shapes, platform.processor(), _processor(), threads, torch.__version__)).encode()).hexdigest()
    file = folder / f"{key[:24]}.json"
    try:
        record = json.loads(file.read_text())
        return PrecisionTiming(float(record["float32"]), float(record["bfloat16"])).precision
    except (OSError, ValueError, KeyError, TypeError):
        if processor().multiplies_bfloat16 is False:
            return "float32"
        choice = _measure_and_log(model)
    write_file(file, json.dumps(asdict(choice) | {"chosen": choice.precision, "threads": threads}))
    return choice.precision


def fix_precision(folder: Path, shape: str, precision: Precision) -> None:
    """Fix the precision of all models of one shape in `folder`, regardless of which is faster.

    Args:
        folder: folder in which choices are stored.
        shape: see `shape_of`.
        precision: the choice for them.
    """
    write_file(_fixed_file(folder, shape), json.dumps({"fixed": precision}))


def shape_of(model: nn.Module) -> str:
    """Return a hash of a model's parameters: names, shapes and whether they learn; the same on every machine."""
    return sha256(repr(_shapes(model)).encode()).hexdigest()[:24]


def _shapes(model: nn.Module) -> list[tuple[str, tuple[int, ...], bool]]:
    return [(name, tuple(p.shape), p.requires_grad) for name, p in model.named_parameters()]


def _fixed_file(folder: Path, shape: str) -> Path:
    return folder / f"fixed-{shape}.json"


def _measure_and_log(model: nn.Module) -> PrecisionTiming:
    """Measure with a log line before and after: for a large model the passes take a while."""
    _LOG.warning("policy.precision: auto times passes in float32 and bfloat16, once for this model on this machine")
    started = time.perf_counter()
    choice = measured(model)
    _LOG.warning(
        "policy.precision: %s (float32 %.3g s a pass, bfloat16 %.3g s; measured in %.1f s)",
        *(choice.precision, choice.float32, choice.bfloat16, time.perf_counter() - started),
    )
    return choice


def measured(model: nn.Module) -> PrecisionTiming:
    """Time forward and backward passes in both precisions, in turn, after a warm-up pass; the shortest time counts.

    If the warm-up pass in bfloat16 is far slower, nothing else is timed.
    """
    with in_eval_mode(model):  # dropout would draw random numbers that belong to the run
        warm = {autocast: _seconds(model, autocast) for autocast in (None, torch.bfloat16)}
        if warm[torch.bfloat16] > max(HOPELESS_SECONDS, HOPELESS * warm[None]):
            return PrecisionTiming(warm[None], warm[torch.bfloat16])
        seconds: dict[torch.dtype | None, list[float]] = {None: [], torch.bfloat16: []}
        remaining = LONGEST - sum(warm.values())
        for turn in range(REPEATS):
            if turn and remaining < 0:
                break
            for autocast, passes in seconds.items():
                passes.append(_seconds(model, autocast))
                remaining -= passes[-1]
    return PrecisionTiming(min(seconds[None]), min(seconds[torch.bfloat16]))


def _seconds(model: nn.Module, autocast: torch.dtype | None) -> float:
    started = time.perf_counter()
    _pass(model, autocast)
    return time.perf_counter() - started


def _pass(model: nn.Module, autocast: torch.dtype | None) -> None:
    inner = plain_inner(model)
    embeddings: Any = inner.get_input_embeddings()
    rows = int(embeddings.weight.shape[0])
    longest = int(getattr(inner.config.get_text_config(), "max_position_embeddings", 0) or PROMPT + COMPLETION)
    prompt = min(PROMPT, max(1, longest // 2))
    completion = min(COMPLETION, max(1, longest - prompt))
    sequences = Sequences(
        [[(3 * at + 1) % rows for at in range(prompt)]] * GROUP,
        [[(5 * at + number) % rows for at in range(completion)] for number in range(GROUP)],
    )
    if inner.get_output_embeddings() is not None:
        values = completion_log_probs(model, sequences, autocast=autocast)[0]
    else:
        use_packed_attention(model)
        row = packed_row(sequences, next(model.parameters()).device)
        values = row_states(model, row.ids, row.positions, row.layout, autocast)
    values.float().square().mean().backward()
    model.zero_grad(set_to_none=True)


def _processor() -> str:
    """Return the processor's name, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line for line in lines if line.startswith("model name")), platform.machine())
