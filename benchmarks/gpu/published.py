"""Our learner on the work of prime-rl's public baselines of one H100, next to their published figures.

The figures are constants: the peer is not run here. They are those of benchmarks/baselines in
https://github.com/PrimeIntellect-ai/prime-rl (commit 8718eb143, files
benchmark-1xh100-Qwen--Qwen3-0.6B-{rl-full,sft-full,rl-16}-1gpu-Recompute-flash_attention_3-16384-cp1-ep1.json, measured
on 2026-01-15). Each is the mean of three steps after one that warms up.

Their step: two micro-batches, each one unbroken sequence of 16,384 made-up tokens, all of which carry loss; forward,
backward, clipping and AdamW. The model is transformers' Qwen3 with FlashAttention 3, bf16 over float32 weights, every
layer compiled by torch and read again for its backward pass. RL makes log-probs and entropies in blocks of the
vocabulary, SFT makes all logits of a row at once. LoRA is RL with rank 16 on the seven linear layers of a block; it has
room for four adapters, none of which has a run in that benchmark, so that its optimiser moves nothing.

Their counter of tokens a second also covers the time between two steps. In RL without LoRA all weights are copied to
the host there: by the counter a step takes 2.75 s, by their clock of the step 1.99 s. Our step has no such copy, so the
peer is their step alone, and the figure of their counter is a row of its own.

Ours: the same shapes with random weights; a row is a prompt of one token with a completion that fills it, so that
nothing is shared. It is measured with layers read again, as theirs, and without, if that fits.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from benchmarks.gpu.shapes import SIZES, TINY_SIZES, TINY_UNBROKEN, UNBROKEN, Packed, Size, label_of, new_model
from benchmarks.gpu.timing import Terms, Timed, Update, timed
from benchmarks.gpu.updates import PRECISION
from benchmarks.shared.learners import OPTIMISER, grpo_update, learner_of, schedule, scored_of
from benchmarks.shared.rows import Row, compare, unmeasured
from models.learner.compiled_layers import are_compiled, compile_layers, should_compile
from models.learner.optimiser import take_step
from models.learner.packing import Sequences
from models.learner.recompute import recomputing
from models.learner.supervised import accumulate
from models.method.learner import Learner
from models.policies.build import LoraSettings, with_adapter

FASTER = 2.0
"""Target ratio of tokens a second to the published step's."""
PEAK = 989e12
"""Operations a second that they divide by on an H100 or H200: NVIDIA's figure for dense bf16."""
THEIR_DEVICE = "one NVIDIA H100 80GB HBM3"
AGAINST = "prime-rl's published figure, one H100, recomputation on; not run here"
COUNTED = f"{AGAINST}; with the copy of all weights to the host between two steps"
NO_FIGURE = "nothing is published for tiny shapes"
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ADAPTER = LoraSettings(rank=16, alpha=32, targets=TARGETS)


@dataclass(frozen=True)
class Published:
    """Means of a published file."""

    step_seconds: float
    """Seconds of a step alone: data, both micro-batches, the optimiser, logging."""
    tokens_per_second: float
    """Tokens a second by their counter."""
    percent: float
    """Percent of `PEAK`, by their counter and formula."""
    gib_reserved: float
    """Most memory that torch had reserved; ours is the allocated memory, which is less."""
    work: str
    """Method of the work, as far as kinds differ."""
    tokens: int = 2 * 16384
    """Tokens of a step."""

    @property
    def rate(self) -> float:
        """Tokens a second of a step alone."""
        return self.tokens / self.step_seconds


@dataclass(frozen=True)
class Kind:
    """One kind of training with published figures."""

    name: str
    what: str
    """Name in the table."""
    figure: Published
    supervised: bool = False
    adapter: bool = False
    copies: bool = False
    """Whether their counter covers a copy of all weights to the host."""


BLOCKS = "log-probs and entropies by blocks of the vocabulary"
KINDS = (
    Kind("rl", "RL", Published(1.99233, 11_895.99, 11.0817, 12.528, f"{BLOCKS}; AdamW"), copies=True),
    Kind("sft", "SFT", Published(1.28193, 25_486.15, 23.7417, 52.840, "all logits at once; AdamW"), supervised=True),
    Kind("lora", "LoRA 16 RL", Published(2.45326, 13_341.81, 10.9023, 5.146, f"{BLOCKS}; nothing moves"), adapter=True),
)


def flops_a_token(size: Size, tokens: int, adapters: int = 0) -> int:
    """Count the operations of a token by prime-rl's formula: forward and backward, nothing for recomputation.

    Attention is counted as if every query saw all keys, and heads were hidden / heads wide. Those of Qwen3-0.6B are
    twice as wide, so that the sum equals that of causal attention.

    Args:
        tokens: tokens of the sequence.
        adapters: entries of the adapters, if all else is frozen; zero: all learns.
    """
    shape = size.shape
    attention = shape.layers * shape.hidden * shape.head_width * 2 * (shape.heads + shape.key_value_heads)
    matrices = attention + 3 * shape.layers * shape.hidden * shape.feed_forward + size.vocabulary * shape.hidden
    seen = 12 * shape.layers * shape.heads * (shape.hidden // shape.heads) * tokens
    return (4 * matrices + 6 * adapters if adapters else 6 * matrices) + seen


def published_cells(tiny: bool) -> dict[str, Callable[[Terms, float], list[Row]]]:
    """Return the measurements, by name; for tiny shapes nothing is published."""
    size, batch = (TINY_SIZES[0], TINY_UNBROKEN) if tiny else (SIZES[0], UNBROKEN)
    return {
        f"published-{kind.name}": lambda terms, _, kind=kind: cell(kind, size, batch, terms, published=not tiny)
        for kind in KINDS
    }


def cell(kind: Kind, size: Size, batch: Packed, terms: Terms, *, published: bool) -> list[Row]:
    """Measure with layers read again, then without. Returns one row with the reason if the first does not run.

    Args:
        published: whether size and batch are those of the published figures.
    """
    goal = FASTER if published and terms.device.type == "cuda" else None
    rows: list[Row] = []
    for again in (True, False):
        ours = timed(partial(update_of, kind, size, batch, terms.device, again), terms)
        measure = measure_of(kind, size, batch, again)
        if not ours.failure:
            rows += _rows(kind, measure, batch, terms.device, ours, goal, published=published)
            continue
        rows.append(unmeasured(measure, "tokens/s", ours.failure, goal))
        if again:  # without, it takes more memory
            break
    return rows


def measure_of(kind: Kind, size: Size, batch: Packed, again: bool) -> str:
    """Name the row that has the rate."""
    way = "recomputation" if again else "no recomputation"
    return label_of(size, f"{kind.what} of {batch.what}, {way}, against prime-rl's published H100 figure: step")


def update_of(kind: Kind, size: Size, batch: Packed, device: torch.device, again: bool) -> Update:
    """Build a model with one optimiser step of ours.

    Args:
        again: whether layers are read again for their backward pass.
    """
    model = new_model(size, batch.longest, device)
    if kind.adapter:
        model = with_adapter(model, ADAPTER, seed=0)
    learner = learner_of(model, PRECISION)
    if should_compile("auto", model):
        compile_layers(model)
    adapters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad) if kind.adapter else 0

    def facts() -> dict[str, Any]:
        return {
            "tokens": batch.tokens,
            "flops_a_token": flops_a_token(size, batch.budget, adapters),
            "parameters": model.num_parameters(),
            "parameters_that_learn": model.num_parameters(only_trainable=True),
            "layers_read_again": again,
            "layers_compiled": are_compiled(model),
        }

    make = _supervised if kind.supervised else _reinforcement
    return Update(model, make(model, learner, size, batch, again), facts)


def _reinforcement(
    model: PreTrainedModel, learner: Learner, size: Size, batch: Packed, again: bool
) -> Callable[[], Any]:
    scored = scored_of(*batch.ids(size.vocabulary), size.vocabulary)
    settings = schedule(token_budget=batch.budget, gradient_checkpointing=again)
    return lambda: grpo_update(learner, scored, settings)


def _supervised(model: PreTrainedModel, learner: Learner, size: Size, batch: Packed, again: bool) -> Callable[[], Any]:
    prompts, completions = zip(*batch.pairs(size.vocabulary), strict=True)
    sequences = Sequences(prompts, completions)

    def step() -> float:
        with recomputing(model, again):
            loss = accumulate(model, sequences, batch.budget, PRECISION)
        return take_step(learner.optimiser, model.parameters(), 0, 1, OPTIMISER, loss=loss)

    return step


def _rows(
    kind: Kind, measure: str, batch: Packed, on: torch.device, ours: Timed, goal: float | None, *, published: bool
) -> list[Row]:
    figure, device = kind.figure, torch.cuda.get_device_name(on) if on.type == "cuda" else "a CPU"
    details = {
        "ours": {
            "device": device,
            "rows": [{"prompt": batch.prompt, "completion": length} for length in batch.lengths],
            "seconds": statistics.median(ours.seconds),
            "gib_allocated": ours.memory if on.type == "cuda" else None,
            **ours.facts,
        },
        "peer": {
            "run_here": False,
            "device": THEIR_DEVICE,
            "rows": [{"unbroken": figure.tokens // 2}] * 2,
            "layers_read_again": True,
            "layers_compiled": True,
            **asdict(figure),
        },
    }
    rates = [batch.tokens / seconds for seconds in ours.seconds]
    short = f"the peer is published of {THEIR_DEVICE} and not run here; ours is of {device}" if published else NO_FIGURE

    def compared(name: str, theirs: float, goal: float | None = None, against: str = AGAINST) -> Row:
        peer = [theirs] if published else None
        return compare(name, rates, peer, "tokens/s", goal, short=short, against=against, details=details)

    percents = 100 * int(ours.facts["flops_a_token"]) / PEAK
    share = compare(
        measure.removesuffix("step") + f"share of {PEAK / 1e12:.0f} TFLOP/s",
        [rate * percents for rate in rates],
        [figure.rate * percents] if published else None,
        "%",
        None,
        short=short,
        against=AGAINST,
    )
    counted = [compared(f"{measure} by its counter", figure.tokens_per_second, against=COUNTED)] if kind.copies else []
    return [compared(measure, figure.rate, goal), share, *counted]
