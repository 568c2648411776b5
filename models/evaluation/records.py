"""What an evaluation leaves of each prompt: plain frozen records from which every metric is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.errors import UserError


@dataclass(frozen=True)
class Completion:
    """One answer of a policy to one prompt."""

    text: str
    tokens: int
    """Length, the end token included."""
    correct: bool
    """What the verifier says; never of one that did not end."""
    finished: bool
    """Whether it ended by itself and not at the limit of tokens."""
    reward_score: float = float("nan")
    """What the reward model says; NaN where there is none."""
    grade: float = float("nan")
    """Share of what was demanded that it meets, in [0, 1]; NaN where the verifier does not grade."""
    start_nats: float = float("nan")
    """Nats a token that the policy from which the training started finds it surprising by; NaN where not measured."""
    turns: str = ""
    """Where it is an episode: of each turn what was said, what was heard and its reward, as JSON; else empty."""


@dataclass(frozen=True)
class PromptRecord:
    """One prompt of the held-out split with what a policy answered."""

    id: str
    level: int
    """Difficulty, 0 = unknown."""
    samples: tuple[Completion, ...]
    """Drawn independently at the evaluation's temperature."""
    greedy: Completion


def aligned(
    candidate: Sequence[PromptRecord], baseline: Sequence[PromptRecord]
) -> tuple[list[PromptRecord], list[PromptRecord]]:
    """Both evaluations in the order of the candidate's prompts.

    Raises:
        UserError: an id occurs twice, or the two were not made on the same prompts.
    """
    known = {record.id: record for record in baseline}
    if len(known) != len(baseline) or len({record.id for record in candidate}) != len(candidate):
        raise UserError("evaluation: a prompt id occurs twice")
    missing = [record.id for record in candidate if record.id not in known]
    if missing or len(candidate) != len(baseline):
        example = missing[0] if missing else next(iter(set(known) - {record.id for record in candidate}))
        raise UserError(
            f"evaluation: candidate and baseline were not measured on the same prompts "
            f"({len(candidate)} against {len(baseline)}; {example!r} is in one only)"
        )
    return list(candidate), [known[record.id] for record in candidate]
