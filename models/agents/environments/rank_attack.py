"""Edits that keep the meaning of a document, so that it rises in the ranks for all queries of a topic.

    prompt   queries cheap auto | auto repair : the shop is old . they fix a car today . the rate is low .
    turns    car auto        every `car` becomes `auto`, if both are in one group of `synonyms`
             front 2         the second sentence becomes the first
             done            the end, which also comes after `edits` edits
    reward   mean over the queries of (rank before - rank after) / (rank before - 1)

After "Topic-oriented Adversarial Attacks against Black-box Neural Ranking Models" (paper 362). The attacked ranker is a
black box: its scores are never used, and its ranks only to decide whether the attack succeeded. With
`reward: surrogate`, the ranks of the reward are those of a surrogate, which was fitted to ranks of the black box for
`asked` other queries (`models.agents.play.black_box_ranker`); with `reward: ranks`, they are the black box's. Synonyms
and whole sentences alone can change, so the set of meanings of a document stays the same. The documents and synonyms
are harmless and made up. Use it to measure how easily a ranker of your own documents can be deceived.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat

from models.agents.play.black_box_ranker import BlackBoxRanker, SurrogateRanker
from models.agents.play.documents import OfDocuments, texts_of, words_of
from models.answers.hidden import Hidden, hidden
from models.base.bounds import Positive, Share
from models.base.errors import UserError
from models.base.source_code import GivenFile
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.recipe_paths import RecipePath
from models.method.registry import part

SETTING = "rollouts.environment.documents"
STOP = " . "
"""Separates the sentences of a document."""
Synonyms = tuple[tuple[str, ...], ...]


class Target(Hidden):
    """Hidden answer of a problem: the document that is edited, and the queries of its topic."""

    document: Annotated[str, Field(min_length=1)]
    """The document, whose sentences are separated by ` . `."""
    queries: Annotated[tuple[str, ...], Field(min_length=1)]
    """Queries of the topic, which the policy reads in the prompt."""
    later: tuple[str, ...] = ()
    """Further queries of the topic, which come after the attack."""


@part("rank_attack")
class RankAttack(OfDocuments, Environment):
    """Edits of a document that raise its rank for the queries of a topic."""

    needs_answers = True
    documents: RecipePath = ""
    """A JSONL file of the other documents ({"text": ..., "title": optional}), a text, or a folder of both; a relative
    path starts at the recipe's folder."""
    sha256: str = ""
    """Hash of their content, filled in when the recipe is read. If a recipe sets it, other content is refused."""
    synonyms: Synonyms = ()
    """Groups of words with the same meaning, in lower case; a word is in one group at most."""
    edits: Annotated[int, Field(ge=1, le=32)] = 4
    """Largest number of edits."""
    reward: Literal["ranks", "surrogate"] = "surrogate"
    """Source of the ranks in the reward: the black box, or a surrogate of it. The goal is decided by the black box."""
    asked: Positive = 48
    """Number of queries that the black box answers to fit the surrogate."""
    lead: NonNegativeFloat = 1.0
    """How much more a word counts for the black box among the first six of a document."""
    top: Positive = 3
    """Rank that counts as a success for a query."""
    share: Share = 0.5
    """Share of the queries with a success from which on the goal is reached."""
    group: Literal["static", "dynamic"] = "static"
    """Queries by which the goal is decided: those that the policy reads (static), or the later ones (dynamic)."""

    def __post_init__(self) -> None:
        words = [word for group in self.synonyms for word in group]
        repeated = next((word for word in words if words.count(word) > 1), None)
        if repeated is not None:
            raise UserError(f"rollouts.environment.synonyms: {repeated!r} occurs twice; a word is in one group at most")
        unusable = next((word for word in words if words_of(word) != [word]), None)
        if unusable is not None:
            raise UserError(f"rollouts.environment.synonyms: {unusable!r} is not a single word in lower case")
        object.__setattr__(self, "_group_of", {word: group for group in self.synonyms for word in group})
        self._know_documents(SETTING)

    def try_out(self) -> None:
        """Read the documents and fit the surrogate.

        Raises:
            UserError: no documents are named, or they cannot be read as documents.
        """
        self._judge()

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem, whose answer is `{"document": ..., "queries": [...], "later": [...]}`.

        Raises:
            UserError: the answer is none of this environment, or has no later queries, which `group: dynamic` needs.
        """
        target = hidden(problem, Target, self.name)
        if self.group == "dynamic" and not target.later:
            raise UserError(
                f"problem {problem.id}: it has no later queries; rollouts.environment.group dynamic needs them"
            )
        return _Editing(self, target)

    def _box(self) -> BlackBoxRanker:
        if not self.given:
            raise UserError(f"{SETTING}: name the documents among which the edited one is ranked")
        return _ranker_of(self.given, self.lead)

    def _judge(self) -> Callable[[str, str], int]:
        """Return the function that ranks a document for a query in the reward."""
        box = self._box()
        return box.rank if self.reward == "ranks" else _surrogate_of(self.given, self.lead, self.asked).rank

    def _edited(self, document: str, turn: str) -> str | None:
        """Return the document after an edit; None if the turn does not edit it."""
        groups: dict[str, tuple[str, ...]] = vars(self)["_group_of"]
        words = turn.split()
        if len(words) != 2:
            return None
        if words[0] == "front":
            sentences = document.split(STOP)
            if not words[1].isdecimal() or not 1 <= int(words[1]) <= len(sentences):
                return None
            return STOP.join([sentences.pop(int(words[1]) - 1), *sentences])
        old, new = words
        tokens = document.split(" ")
        if old not in tokens or new not in groups.get(old, ()):
            return None
        return " ".join(new if token == old else token for token in tokens)


@lru_cache(maxsize=4)
def _ranker_of(files: tuple[GivenFile, ...], lead: float) -> BlackBoxRanker:
    return BlackBoxRanker(texts_of(files, SETTING), lead)


@lru_cache(maxsize=4)
def _surrogate_of(files: tuple[GivenFile, ...], lead: float, asked: int) -> SurrogateRanker:
    return SurrogateRanker(_ranker_of(files, lead), asked)


class _Editing:
    def __init__(self, settings: RankAttack, target: Target) -> None:
        self._settings, self._target = settings, target
        self._document, self._turns = target.document, 0

    def reset(self, seed: int) -> tuple[str, Info]:
        self._document, self._turns = self._target.document, 0
        return "", self._info()

    def _info(self) -> Info:
        return {"state": self._document, "solved": False}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        done = turn.strip() == "done"
        edited = None if done else self._settings._edited(self._document, turn)
        self._turns += 1
        self._document = edited or self._document
        if not done and self._turns < self._settings.edits:
            answer = "ok" if edited else "error: no edit of this document"
            return answer, 0.0, False, False, self._info()
        return self._outcome()

    def _outcome(self) -> tuple[str, float, bool, bool, Info]:
        settings, target = self._settings, self._target
        rank = settings._judge()
        gains = [_gain(rank(query, target.document), rank(query, self._document)) for query in target.queries]
        judged = target.queries if settings.group == "static" else target.later
        ranks = [settings._box().rank(query, self._document) for query in judged]
        solved = sum(number <= settings.top for number in ranks) >= settings.share * len(ranks)
        text = "ranks " + " ".join(str(number) for number in ranks)
        return text, fmean(gains), True, False, {"state": self._document, "solved": solved}

    def close(self) -> None:
        return None


def _gain(before: int, after: int) -> float:
    """Return the share of the way to rank 1 that was gained; negative if the rank fell."""
    return (before - after) / max(before - 1, 1)
