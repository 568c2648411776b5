"""The canary: engine and learner must agree on the log-probs of fixed tokens after every weight sync.

It detects a sync that silently did nothing, a wrong dtype or a stale prefix cache at once, and the run stops instead of
training on rollouts of another policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import torch
from torch import nn

from models.base.errors import UserError
from models.engines.engine import Engine
from models.learner.eval_mode import in_eval_mode
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences

TOLERANCE = {None: 1e-3, torch.bfloat16: 0.1}
"""Largest gap that is still rounding, in nats per token, by the coarser precision of learner and engine. It is the mean
over tokens, because rounding has a long tail: in bfloat16 a token of one policy differed by 0.45, the mean by 0.03."""


def canary_gap(engine: Engine, policy: nn.Module, sequences: Sequences, autocast: torch.dtype | None) -> float:
    """Return the mean absolute difference of the engine's and the learner's log-probs, in nats per token.

    Every engine of a fleet scores all of them, because each has its own weights, and the largest distance is returned.
    """
    engine_log_probs = [
        [value for row in member.score(sequences.prompts, sequences.completions) for value in row]
        for member in engine.members()
    ]
    with in_eval_mode(policy), torch.no_grad():  # dropout applies to the learner only: the engine runs the whole policy
        learner_log_probs, _ = completion_log_probs(policy, sequences, autocast=autocast)
    return float((torch.tensor(engine_log_probs) - learner_log_probs.float().cpu()).abs().mean(-1).max())


def check(gap: float, tolerance: float, round_number: int) -> None:
    """Raise an error, which stops the run, if the gap is above the tolerance.

    Raises:
        UserError: engine and learner no longer run the same policy.
    """
    if not gap <= tolerance:
        raise UserError(
            f"round {round_number}: after the weights were handed over, engine and learner differ by {gap:.4f} nats a "
            f"token (tolerance {tolerance}): the engine does not run the learner's policy; nothing was learned from it"
        )


def fixed_tokens(prompts: Iterable[Sequence[int]], end: int, rows: int = 4) -> Sequences:
    """Return the sequences that the canary scores all through the run: the first prompts, after their first token.

    A prompt with images is scored after the last of them, because the tokens of an image have no probability.
    """
    chosen = list(islice((list(ids) for ids in prompts if ids), rows))
    firsts = [1 + max((place for place, token in enumerate(ids) if token < 0), default=0) for ids in chosen]
    pairs = list(zip(chosen, firsts, strict=True))
    return Sequences([ids[:first] for ids, first in pairs], [[*ids[first:], end] for ids, first in pairs])
