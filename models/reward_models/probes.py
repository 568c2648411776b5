"""Changes of a completion that keep its correctness: a score that reacts to them depends on the form.

answer_alone    everything but the statement of the answer is removed
repeated        the completion is repeated once
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from models.answers.answers import extract_answer
from models.learner.packing import Sequences
from models.reward_models.scorer import Scorer


def answer_alone(text: str) -> str:
    """Return the answer after the marker of the built-in data; a text that states none is unchanged."""
    answer = extract_answer(text)
    return text if answer is None else f"#### {answer}"


def repeated(text: str) -> str:
    """Return the text twice."""
    return f"{text} {text}"


probes: Mapping[str, Callable[[str], str]] = MappingProxyType({"answer_alone": answer_alone, "repeated": repeated})
"""Each change by its name."""


def moved(score: Scorer, changed: Sequences, scores: ArrayLike) -> float:
    """Return the mean change of the score by a probe, in standard deviations of the scores; 0 if these have no spread.

    Args:
        score: function that scores prompts with completions, [completions].
        changed: the completions after the change, [completions].
        scores: scores of the completions before it, [completions].
    """
    before = np.asarray(scores, dtype=np.float64)
    spread = float(before.std())
    after = score(changed).double().numpy()
    return float((after - before).mean()) / spread if spread > 0 else 0.0
