"""Log-probs of the data's answers under a reference that never moves: computed once, before the loop begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from models.learner.packing import Sequences
from models.learner.reference_cache import cached_reference_log_probs
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.problem_rows import Problems
from models.method.reference import Reference
from models.method.rollout_source import Rollouts
from models.method.schedule import BUDGET_KEY


def with_reference(
    problems: Sequence[Problem],
    learner: Learner,
    rollouts: Rollouts,
    reference: Reference,
    token_budget: int,
    folder: Path,
) -> Sequence[Problem]:
    """Return `problems` with the log-probs of their known answers under the reference, computed or read from disk.

    They are returned unchanged if the reference moves or is not kept, if completions are drawn, or if there are too
    many problems to hold: then the loop reads the reference round by round.

    Args:
        problems: problems with the answers in the data.
        learner: has the reference.
        rollouts: the source of completions.
        reference: the part of the recipe.
        token_budget: tokens of one packed row.
        folder: where log-probs are kept (`models.learner.reference_cache`).
    """
    if rollouts.draws or reference.moves or not reference.kept or isinstance(problems, Problems):
        return problems
    flat = [(problem, known) for problem in problems for known in problem.known]
    sequences = Sequences([problem.tokens for problem, _ in flat], [known.completion for _, known in flat])
    with learner.as_reference() as model:
        assert model is not None, "the recipe has a reference"
        rows = cached_reference_log_probs(
            folder,
            model,
            sequences,
            distribution=learner.distribution,
            autocast=learner.autocast,
            token_budget=token_budget,
            setting=BUDGET_KEY,
        )
    values = iter(rows)
    return [
        replace(problem, known=tuple(replace(answer, reference_log_probs=next(values)) for answer in problem.known))
        for problem in problems
    ]
