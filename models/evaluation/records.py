"""Records of an evaluation: plain frozen data of each prompt, from which every metric is computed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from models.base.errors import UserError


@dataclass(frozen=True)
class Completion:
    """One answer of a policy to one prompt."""

    text: str
    tokens: int
    """Length in tokens, including the end token."""
    correct: bool
    """Whether the verifier accepts it; always False for a completion that did not end."""
    finished: bool
    """Whether it ended by itself, not at the token limit."""
    reward_score: float = float("nan")
    """Score of the reward model; NaN if there is none."""
    grade: float = float("nan")
    """Share of the requirements that it meets, in [0, 1]; NaN if the verifier does not grade."""
    start_nats: float = float("nan")
    """Surprise under the starting policy of the training, in nats per token; NaN if not measured."""
    copied_run: float = float("nan")
    """Words of the longest run that it shares with training rows (`models.evaluation.copied`); NaN if not measured."""
    copied_share: float = float("nan")
    """Share of its runs of words that occur in training rows; NaN if not measured."""
    claims: str = ""
    """Checked claims as JSON (`models.evaluation.hallucination`); empty if they were not checked."""
    turns: str = ""
    """Turns of an episode as JSON, see `turns_to_json`; empty for a completion that is not an episode."""


@dataclass(frozen=True)
class PromptRecord:
    """One prompt of the held-out split with the policy's answers."""

    id: str
    level: int
    """Difficulty, 0 = unknown."""
    samples: tuple[Completion, ...]
    """Completions, drawn independently at the evaluation's temperature."""
    greedy: Completion


@dataclass(frozen=True)
class TurnRecord:
    """One turn of an episode."""

    text: str
    """Text that the policy wrote."""
    response: str
    """Answer of the environment."""
    reward: float


_FORMER_KEYS = {"said": "text", "heard": "response"}
"""Keys in evaluations of earlier releases, with their present names."""


def turns_to_json(turns: Sequence[TurnRecord]) -> str:
    """Write turns as JSON, for `Completion.turns`."""
    return json.dumps([asdict(turn) for turn in turns])


def turns_of(completion: Completion) -> list[TurnRecord]:
    """Return the turns of an episode; empty for a completion that is not an episode."""
    rows = json.loads(completion.turns or "[]")
    return [TurnRecord(**{_FORMER_KEYS.get(key, key): value for key, value in row.items()}) for row in rows]


def aligned(
    candidate: Sequence[PromptRecord], baseline: Sequence[PromptRecord]
) -> tuple[list[PromptRecord], list[PromptRecord]]:
    """Return both evaluations in the order of the candidate's prompts.

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
