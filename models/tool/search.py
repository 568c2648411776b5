"""Search over documents of one's own, on this machine (a tool as in Search-R1, arXiv 2503.09516).

    search: river of Velmo
    river of Velmo: Tosik

Documents are ranked by BM25; the best are what the policy reads, a line each. Their content is hashed when the recipe
is read, and kept on the run.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.bounds import Positive
from models.episodes.documents import Index, OfDocuments, index_of
from models.episodes.tool import Tool, ToolError
from models.errors import UserError
from models.parts import part
from models.recipe_paths import RecipePath

SETTING = "rollouts.environment.tool.documents"


@part("search")
class Search(OfDocuments, Tool):
    """Looks words up in documents."""

    usage = "words to look for"
    documents: RecipePath = ""
    """A JSONL file of documents ({"text": ..., "title": optional}), a text, or a folder of both; a relative path is
    meant from the recipe's folder."""
    sha256: str = ""
    """Hash of their content, filled in when the recipe is read. Written into a recipe, it refuses another content."""
    results: Annotated[int, Field(ge=1, le=100)] = 3
    """Most documents of an answer."""
    longest: Positive = 300
    """Characters of a document that the policy reads; what follows is cut."""

    def __post_init__(self) -> None:
        self._know_documents(SETTING)

    def try_out(self) -> None:
        """Build the index.

        Raises:
            UserError: no documents are named, or they are none.
        """
        self._index()

    def call(self, argument: str) -> str:
        """The documents that fit best, a line each; an error where no word of the query stands in any."""
        lines = self._index().best(argument, self.results)
        if not lines:
            raise ToolError("nothing is known of that")
        return "\n".join(" ".join(line.split())[: self.longest] for line in lines)

    def _index(self) -> Index:
        if not self.given:
            raise UserError(f"{SETTING}: name the documents that the tool {self.name} looks through")
        return index_of(self.given, SETTING)
