"""A model that the policy may ask in place of answering itself, with a price (Router-R1, paper 273, arXiv 2506.09033).

    small: river of Velmo     river of Velmo: Tosik

Candidates differ in what they know and in what they cost. Each stands in for a language model behind an interface: it
answers from documents, and where it does not know it says what is true of something else, in the same words, as models
do. What a call costs is the matter of the reward `cost`.
"""

from __future__ import annotations

import hashlib

from models.episodes.tool import Offer
from models.parts import part
from models.tool.search import Search


@part("candidate")
class Candidate(Search):
    """Answers questions from documents, as far as it knows them."""

    usage = "a question"
    called: str = "large"
    """Name that the policy asks it by."""
    knows: tuple[str, ...] = ()
    """Words of which a question must hold one to be answered rightly; empty: it knows everything."""

    def offers(self) -> dict[str, Offer]:
        """Itself, by its own name."""
        return {self.called: Offer(self.usage, self.call)}

    def call(self, argument: str) -> str:
        """What it says, rightly or not."""
        lines = super().call(argument)
        if not self.knows or set(self.knows) & set(argument.casefold().split()):
            return lines
        line = lines.splitlines()[0]
        head, _, said = line.partition(": ")
        others = [value for text in self._index().like(line) if (value := text.partition(": ")[2]) != said]
        place = int.from_bytes(hashlib.sha256(argument.encode()).digest()[:6], "big")
        return f"{head}: {others[place % len(others)]}" if others else line
