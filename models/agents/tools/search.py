"""Search over the user's own documents, on this machine (a tool as in Search-R1, arXiv 2503.09516).

    search: river of Velmo
    river of Velmo: Tosik

Documents are ranked by BM25; the policy reads the best ones, one per line. Their content is hashed when the recipe is
read, and kept with the run.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.agents.play.documents import Index, OfDocuments, index_of
from models.base.bounds import Positive
from models.base.errors import UserError
from models.method.recipe_paths import RecipePath
from models.method.registry import part
from models.method.tool import Tool, ToolError

SETTING = "rollouts.environment.tool.documents"


@part("search")
class DocumentSearch(OfDocuments, Tool):
    """A search for words in documents."""

    usage = "words to look for"
    documents: RecipePath = ""
    """A JSONL file of documents ({"text": ..., "title": optional}), a text, or a folder of both; a relative path starts
    at the recipe's folder."""
    sha256: str = ""
    """Hash of their content, filled in when the recipe is read. If a recipe sets it, other content is refused."""
    results: Annotated[int, Field(ge=1, le=100)] = 3
    """Maximum number of documents in an answer."""
    longest: Positive = 300
    """Maximum length of a document that the policy reads, characters; the rest is cut."""

    def __post_init__(self) -> None:
        self._know_documents(SETTING)

    def try_out(self) -> None:
        """Build the index.

        Raises:
            UserError: no documents are named, or they cannot be read as documents.
        """
        self._index()

    def call(self, argument: str) -> str:
        """Return the best documents, one per line; raise a ToolError if no word of the query occurs in any document."""
        lines = self._index().best(argument, self.results)
        if not lines:
            raise ToolError("nothing is known of that")
        return "\n".join(" ".join(line.split())[: self.longest] for line in lines)

    def _index(self) -> Index:
        if not self.given:
            raise UserError(f"{SETTING}: name the documents that the tool {self.name} looks through")
        return index_of(self.given, SETTING)
