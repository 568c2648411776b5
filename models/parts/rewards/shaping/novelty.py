"""Novelty of a text against all that the run has written before (curiosity-driven red teaming, paper 145, 2402.19464).

    value = bleu * (1 - mean over n of BLEU_n(x; archive)) + cosine * (1 - mean over y of cos(e(x), e(y)))

A policy that is rewarded for success alone repeats the first text that succeeds. Here a text earns less, the more of
its n-grams earlier rounds contain (BLEU with all earlier texts as references), and the nearer it is to their mean. The
archive has the texts of all earlier rounds, whether they succeeded or not. It is part of every checkpoint.

BLEU_n is the geometric mean of the clipped precisions of 1 to n words, times the penalty for brevity against the
nearest length. n beyond the text's own length is that length. With an empty archive every text is new: 1 for each
term. The embedding e is the text's words with their counts, or the mean hidden state of the reference after it.

The published code uses fast_bleu, which gives an order without matches the precision 0.1 / count instead of 0, and
counts orders beyond the text's length in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from models.answers.patterns import compiled, matched
from models.base.bounds import Positive
from models.base.errors import UserError
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reasoned, ReasonedReward
from models.method.rollout import Rollout
from models.parts.shared.text_states import text_directions

Grams = Counter[tuple[str, ...]]


@part("novelty")
class Novelty(ReasonedReward):
    """Distance of a completion's text from the texts of all earlier rounds, in n-grams and as a vector."""

    bleu: NonNegativeFloat = 1.0
    """Weight of one minus the BLEU against the archive."""
    cosine: NonNegativeFloat = 1.0
    """Weight of one minus the mean cosine with the archive."""
    grams: tuple[Annotated[int, Field(ge=1, le=16)], ...] = (2, 3, 4, 5)
    """Orders n of BLEU_n, whose mean is taken."""
    embedding: Literal["words", "states"] = "words"
    """Vector of a text: its words with their counts, or the mean hidden state of the reference, which the recipe then
    needs."""
    reads: str = ""
    """Regular expression of the part of a text that is compared, so that words around it earn nothing; empty: all."""
    keep: Positive = 100_000
    """Largest number of distinct texts in the archive; the oldest are dropped first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        if not self.grams:
            raise UserError(f"{where}.grams: none; name the orders of BLEU, such as [2, 3, 4, 5]")
        if not self.bleu + self.cosine > 0:
            raise UserError(f"{where}: bleu and cosine are both 0, so no text is new; set one of them above 0")
        object.__setattr__(self, "_reads", compiled(self.reads, f"{where}.reads"))

    @property
    def reads_learner(self) -> bool:
        """Whether it reads the reference's hidden states."""
        return self.embedding == "states"

    @property
    def needs_reference(self) -> bool:
        """Whether the recipe needs a reference."""
        return self.embedding == "states"

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Compute the novelty of each completion, [completions], then add the texts to the archive.

        Texts of the same call are not compared with each other. A text in which nothing is read is worth 0, because it
        would stay new for ever, and it is not added. The metric `archive` is the number of distinct texts.

        Raises:
            UserError: it embeds by hidden states, and the recipe has no reference.
        """
        archive = resources.learner.tally.archived(self.label)
        texts = [self._compared(rollout.text) for rollout in rollouts]
        values = torch.zeros(len(texts), dtype=torch.float64)
        if self.bleu:
            values += self.bleu * (1.0 - self_bleu(texts, archive, self.grams))
        if self.cosine:
            values += self.cosine * (1.0 - self._mean_cosine(resources, texts, archive))
        values[torch.tensor([not text for text in texts], dtype=torch.bool)] = 0.0
        resources.learner.tally.archived(self.label, filter(None, texts))
        for text in list(archive)[: max(0, len(archive) - self.keep)]:
            del archive[text]
        return Reasoned(values.float(), [""] * len(texts), {"archive": float(len(archive))})

    def _compared(self, text: str) -> str:
        return " ".join(matched(vars(self)["_reads"], text).split())

    def _mean_cosine(self, resources: RunResources, texts: Sequence[str], archive: Mapping[str, int]) -> Tensor:
        """Return the mean cosine of each text with the archive's texts, by their counts, [texts]; 0 with none."""
        if not archive:
            return torch.zeros(len(texts), dtype=torch.float64)
        if self.embedding == "words":
            return word_cosine(texts, archive)
        vectors = text_directions(resources, [*archive, *texts], f"reward {self.label}")
        total = torch.stack([count * vectors[text] for text, count in archive.items()]).sum(0)
        return torch.stack([vectors[text] @ total for text in texts]) / sum(archive.values())


def self_bleu(texts: Sequence[str], archive: Iterable[str], grams: Sequence[int]) -> Tensor:
    """Compute the mean over `grams` of BLEU_n of each text with the archive as references, [texts], float64.

    It is 0 with an empty archive, and for a text without words.
    """
    references = [text.split() for text in archive]
    longest = max(grams)
    most: Grams = Counter()
    for words in references:
        for gram, count in _grams(words, longest).items():
            most[gram] = max(most[gram], count)
    lengths = sorted({len(words) for words in references})
    known: dict[str, float] = {}
    for text in texts:
        if text not in known:
            known[text] = _bleu(text.split(), most, lengths, grams)
    return torch.tensor([known[text] for text in texts], dtype=torch.float64)


def word_cosine(texts: Sequence[str], archive: Mapping[str, int]) -> Tensor:
    """Compute the mean cosine of the word counts of each text and the archive's texts, [texts], float64.

    Args:
        texts: compared texts; one without words has cosine 0 with all.
        archive: text -> how often it counts; not empty.
    """
    total: dict[str, float] = {}
    for text, count in archive.items():
        for word, share in _direction(text).items():
            total[word] = total.get(word, 0.0) + count * share
    size = sum(archive.values())
    sums = [sum(share * total.get(word, 0.0) for word, share in _direction(text).items()) for text in texts]
    return torch.tensor(sums, dtype=torch.float64) / size


def _direction(text: str) -> dict[str, float]:
    """Return the word counts of a text as a vector of length one."""
    counts = Counter(text.split())
    length = math.sqrt(sum(count * count for count in counts.values()))
    return {word: count / length for word, count in counts.items()}


def _grams(words: Sequence[str], longest: int) -> Grams:
    return Counter(
        tuple(words[place : place + size]) for size in range(1, longest + 1) for place in range(len(words) - size + 1)
    )


def _bleu(words: Sequence[str], most: Grams, lengths: Sequence[int], grams: Sequence[int]) -> float:
    if not words or not lengths:
        return 0.0
    own = _grams(words, max(grams))
    logs = []
    for size in range(1, min(max(grams), len(words)) + 1):
        mine = {gram: count for gram, count in own.items() if len(gram) == size}
        share = sum(min(count, most[gram]) for gram, count in mine.items()) / sum(mine.values())
        logs.append(math.log(share) if share else -math.inf)
    nearest = min(lengths, key=lambda length: (abs(length - len(words)), length))
    brevity = min(0.0, 1.0 - nearest / len(words))
    orders = [min(n, len(words)) for n in grams]
    return sum(math.exp(brevity + sum(logs[:n]) / n) for n in orders) / len(orders)
