"""A model that the policy may query instead of answering itself, at a price (Router-R1, paper 273, arXiv 2506.09033).

    small: river of Velmo     river of Velmo: Tosik

Candidates differ in their knowledge and in their price. Each is a substitute for a language model behind an interface:
it answers from documents, and outside its knowledge it gives the value of another document in the same form, as
language models do. The reward `cost` sets the price of a call.
"""

from __future__ import annotations

import hashlib

from models.agents.tools.search import DocumentSearch
from models.method.registry import part
from models.method.tool import Offer


@part("candidate")
class CandidateModel(DocumentSearch):
    """A model that answers questions from documents, as far as it knows them."""

    usage = "a question"
    called: str = "large"
    """Name by which the policy calls it."""
    knows: tuple[str, ...] = ()
    """Words of which a question must hold one to be answered correctly; empty: it knows everything."""

    def offers(self) -> dict[str, Offer]:
        """Return the candidate by its own name."""
        return {self.called: Offer(self.usage, self.call)}

    def call(self, argument: str) -> str:
        """Return the candidate's answer, right or wrong."""
        lines = super().call(argument)
        if not self.knows or set(self.knows) & set(argument.casefold().split()):
            return lines
        line = lines.splitlines()[0]
        head, _, answer = line.partition(": ")
        others = [value for text in self._index().like(line) if (value := text.partition(": ")[2]) != answer]
        place = int.from_bytes(hashlib.sha256(argument.encode()).digest()[:6], "big")
        return f"{head}: {others[place % len(others)]}" if others else line
