"""Supervised fine-tuning: raise the likelihood of completions given their prompts. No prompt token carries loss.

The warm start of a new policy, and the fit of a base model to demonstrations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn

from models.base.bounds import Positive
from models.base.errors import UserError
from models.base.seeds import seed_of
from models.learner.compiled_layers import compile_layers, should_compile
from models.learner.image_features import reads_images
from models.learner.log_probs import completion_log_probs
from models.learner.optimiser import OptimiserSettings, build_optimiser, take_step
from models.learner.out_of_memory import GradientPlan, within_memory
from models.learner.packing import Sequences, longest_unit
from models.learner.recompute import can_recompute
from models.learner.rows import LearnerRow, rows_of
from models.learner.upload import to_device
from models.learner.whole_weights import ranks_of

Report = Callable[[int, dict[str, float]], None]

BUDGET_KEY = "warm_start.token_budget"
"""Key of the tokens of one packed row in the recipe."""


PACKED_TOGETHER = 1 << 16
"""Held-out sequences that are in memory together."""


@dataclass(frozen=True, kw_only=True)
class TokenCounts:
    """Weights of tokens of demonstrations. Set under `warm_start.counts`."""

    erroneous: NonNegativeFloat = 1.0
    """Weight of each token of a turn that the environment answered by an error; zero: it is read, and not imitated."""
    key: NonNegativeFloat = 1.0
    """Weight of each token between quotation marks in any other turn: names and values of a call."""


@dataclass(frozen=True, kw_only=True)
class SupervisedSettings:
    """Settings of the warm start. Set under `warm_start:`."""

    renamed: ClassVar[Mapping[str, str]] = {"tells": "shows"}
    steps: Positive = 300
    """Number of updates."""
    batch: Positive = 128
    """Demonstrations of one update."""
    token_budget: Positive = 16384
    """Tokens of one packed row; bounds memory and does not change the result."""
    compile: bool | Literal["auto"] = "auto"
    """Whether torch compiles the layers, as in `schedule.compile` for the rounds."""
    report_every: Positive = 10
    """Updates between two reports of the metrics."""
    only_right: bool = False
    """Leave out demonstrations that are not right, by the criterion of evaluations: they state the true answer, or pass
    the tests of their problem if a reward runs these."""
    context: Annotated[str, Field(pattern=r"\{shown\}")] | None = None
    """Template of a second copy of every right demonstration, which replaces its prompt; `{prompt}` and `{shown}` are
    filled in: so that the policy can judge itself with the hint (rollouts privileged). None: no second copy."""
    shows: Literal["answer", "demonstration", "feedback", "another"] = "answer"
    """The hint that fills the template: the true answer, the demonstration itself, or a wrong demonstration of the same
    prompt with its feedback by `rollouts.feedback`; a prompt without a wrong one gets none. another: the next
    demonstration of the same prompt; wrong ones get a second copy as well, so that the policy reads an attempt in its
    prompt that gives no hint about the answer."""
    counts: TokenCounts = TokenCounts()
    """Weights of tokens of demonstrations of several turns (`models.agents.play.demonstrations`)."""
    optimiser: OptimiserSettings = field(
        default_factory=lambda: OptimiserSettings(
            learning_rate=1e-3, decay="cosine", warmup_steps=20, weight_decay=0.01
        )
    )

    @property
    def judges(self) -> bool:
        """Whether the training data depend on which demonstrations are right."""
        return self.only_right or self.context is not None


def shuffled_batches(
    rows: int, batch: int, seed: int, together: Sequence[Sequence[int]] | None = None
) -> Iterator[list[int]]:
    """Yield batches of row numbers without end; each epoch is one permutation, drawn from `seed` and the epoch.

    Args:
        together: groups of rows that stay next to each other in the permutation, each row in one; None: each alone.
    """
    epoch = 0
    carried = torch.empty(0, dtype=torch.int64)
    while True:
        generator = torch.Generator().manual_seed(seed_of(seed, "batches", epoch))
        if together is None:
            order = torch.randperm(rows, generator=generator)
        else:
            groups = torch.randperm(len(together), generator=generator).tolist()
            order = torch.tensor([row for group in groups for row in together[group]])
        carried = torch.cat([carried, order])
        whole = len(carried) // batch * batch
        for begin in range(0, whole, batch):
            yield carried[begin : begin + batch].tolist()
        carried = carried[whole:].clone()
        epoch += 1


def rows_by_image(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Group rows by the first image in their prompts, so that its features serve several rows, [groups][rows].

    Prompts without an image are groups of one row.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, prompt in enumerate(prompts):
        first = next((place for place, token in enumerate(prompt) if token < 0), None)
        key = (number,) if first is None else (-1, *(token for token in prompt[first : first + 2]))
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def fit_supervised(
    model: nn.Module,
    sequences: Sequences,
    settings: SupervisedSettings,
    *,
    seed: int,
    autocast: torch.dtype | None = None,
    report: Report = lambda step, metrics: None,
    recompute: bool = False,
) -> dict[str, float]:
    """Fine-tune `model` in place on `sequences`. Returns the last reported metrics.

    Args:
        report: called with the number of updates and the metrics, every `settings.report_every` updates and at the end.
        recompute: whether to use gradient checkpointing from the start.

    Raises:
        UserError: there is nothing to learn from, or the loss is not finite.
    """
    if not len(sequences):
        raise UserError("warm_start: no demonstrations to learn from")
    model.train()
    if should_compile(settings.compile, model):
        compile_layers(model)
    optimiser = build_optimiser(model, settings.optimiser)
    together = rows_by_image(sequences.prompts) if reads_images(model) else None
    batches = shuffled_batches(len(sequences), min(settings.batch, len(sequences)), seed, together)
    metrics: dict[str, float] = {}
    way, able = GradientPlan(settings.token_budget, recompute=recompute), can_recompute(model)
    for step in range(settings.steps):
        batch = sequences.take(next(batches))
        loss, way = within_memory(
            partial(accumulate, model, batch, autocast=autocast),
            model,
            optimiser,
            way,
            partial(longest_unit, batch),
            f"warm start, update {step}",
            able=able,
        )
        norm = take_step(
            optimiser, model.parameters(), step, settings.steps, settings.optimiser, "warm_start.optimiser", loss
        )
        if (step + 1) % settings.report_every == 0 or step + 1 == settings.steps:
            metrics = {"loss": float(loss), "gradient_norm": norm}
            report(step + 1, metrics)
    model.eval()
    return metrics


def accumulate(model: nn.Module, batch: Sequences, token_budget: int, autocast: torch.dtype | None) -> Tensor:
    """Accumulate the gradient of the mean negative log-likelihood per completion token. Returns it, a scalar, nats.

    The mean is weighted if the batch has weights.
    """
    counted = _counted(batch)
    whole = sum(float(weights.sum()) for weights in counted)
    total = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device)
    for row in rows_of(model, batch, token_budget, setting=BUDGET_KEY):
        loss = _weighted(model, row, counted, autocast) / whole
        row.backward(loss)
        total = total.to(loss.device) + row.counts * loss.detach()
    return ranks_of(model).sum(total)


@torch.no_grad()
def negative_log_likelihood(
    model: nn.Module, sequences: Sequences, token_budget: int, autocast: torch.dtype | None = None
) -> float:
    """Compute the mean negative log-likelihood per completion token, nats, weighted if the sequences have weights."""
    total, counts = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device), 0.0
    for first in range(0, len(sequences), PACKED_TOGETHER):
        some = sequences.take(range(first, min(len(sequences), first + PACKED_TOGETHER)))
        counted = _counted(some)
        counts += sum(float(weights.sum()) for weights in counted)
        for row in rows_of(model, some, token_budget, setting=BUDGET_KEY):
            total = total + row.counts * _weighted(model, row, counted, autocast).double()
    return float(ranks_of(model).sum(total)) / max(1.0, counts)


def _counted(sequences: Sequences) -> list[Tensor]:
    """Return the weight of each completion token, [completions] tensors of [tokens of it], float64."""
    if sequences.weights is None:
        return [torch.ones(len(completion), dtype=torch.float64) for completion in sequences.completions]
    return [torch.tensor(weights, dtype=torch.float64) for weights in sequences.weights]


def _weighted(model: nn.Module, row: LearnerRow, counted: Sequence[Tensor], autocast: torch.dtype | None) -> Tensor:
    """Sum the negative log-likelihood of a row's tokens, each times its weight, a scalar, nats."""
    weights = torch.cat([counted[index] for index in row.indices])
    kept = None
    if row.sequences.weights is not None:
        places = weights.nonzero().squeeze(1)
        weights, kept = weights[places], to_device(places, next(model.parameters()).device)
    log_prob, _ = completion_log_probs(model, row.sequences, autocast=autocast, kept=kept)
    return -(to_device(weights, log_prob.device, log_prob.dtype) * log_prob).sum()
