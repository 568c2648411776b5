"""How alike two texts are, by metrics of translation as sacrebleu has them, in [0, 1].

bleu   clipped precisions of one to four words, smoothed, times a penalty of brevity (Papineni et al. 2002)
chrf   F of the runs of one to six characters, recall counting twice (Popovic 2015)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

Metric = Literal["bleu", "chrf"]


def likeness(text: str, reference: str, metric: Metric) -> float:
    """How alike two texts are, in [0, 1]."""
    score: float = _measure(metric).sentence_score(text, [reference]).score
    return min(1.0, score / 100)


@lru_cache(maxsize=2)
def _measure(metric: Metric) -> BLEU | CHRF:
    return BLEU(effective_order=True) if metric == "bleu" else CHRF()
