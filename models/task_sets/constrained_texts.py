"""Short texts about everyday topics under one to three constraints that a program checks, in the manner of IFEval.

    Write a short text about bees. Use 15 to 40 words. Do not use any commas.

Every problem has one constraint on the form (a number of words, of sentences or of bullet points, or JSON with given
keys), so that a few words never suffice, and up to two on the wording: lower case, no commas, a phrase at the start or
at the end, a word to include or to avoid, a title. No two of them contradict each other. The level is their number.

The topics of `unseen_topics` and the pairs of constraints of `unseen_pairs` do not occur here. The task sets of these
names contain them, to measure generalisation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from random import Random
from typing import ClassVar

from models.answers.constraints import Constraint, Constraints, Kind
from models.base.errors import UserError
from models.task_sets.drawing import Task, TaskSettings


def read_topics(text: str) -> tuple[str, ...]:
    """Return the topics of a list separated by semicolons."""
    return tuple(" ".join(topic.split()) for topic in text.split(";"))


TOPICS = read_topics(
    """bees; cats; dogs; horses; cows; chickens; rabbits; owls; penguins; whales; dolphins; sharks; frogs; turtles;
    ants; spiders; butterflies; elephants; lions; bears; wolves; foxes; the ocean; rivers; lakes; mountains; deserts;
    forests; islands; beaches; volcanoes; the moon; the sun; stars; planets; rainy days; snow; wind; clouds; thunder;
    rainbows; winter; summer; autumn; spring; bread; cheese; apples; oranges; chocolate; pizza; soup; rice; pasta;
    potatoes; tomatoes; honey; tea; coffee; sugar; bicycles; trains; airplanes; ships; bridges; castles; museums;
    libraries; schools; markets; farms; gardens; parks; kitchens; cities; villages; books; newspapers; letters; poems;
    movies; music; guitars; painting; dancing; football; swimming; chess; running; hiking; camping; fishing; skiing;
    teachers; doctors; nurses; farmers; cooks; pilots; firefighters; computers; telephones; cameras; clocks; maps;
    mirrors; lamps; candles; umbrellas; shoes; hats; paper; glass; gold; sleep; dreams; friendship; holidays;
    birthdays; exercise"""
)
ASKS = (
    "Write a short text about {}.",
    "Tell me something interesting about {}.",
    "Describe {} to a child.",
    "Why do people like {}?",
    "What should I know about {}?",
    "Write a short note to a friend about {}.",
)
NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}
WORD_RANGES = ((10, 30), (15, 40), (20, 50))
OPENINGS = ("In short", "Here is my answer", "Dear friend", "Good question")
CLOSINGS = ("Thank you for reading", "That is all", "Have a nice day", "Hope this helps")
INCLUDED = ("world", "people", "water", "light", "time", "home", "color", "small", "happy", "beautiful")
AVOIDED = ("very", "and", "is", "many", "can")
KEYS = (("name", "fact"), ("title", "text"), ("topic", "reason"), ("question", "answer"))

FORMS: tuple[Kind, ...] = ("words", "sentences", "bullets", "json")
"""Constraints on the form, of which every problem has one."""
WORDINGS: tuple[Kind, ...] = ("lower", "no_commas", "starts", "ends", "contains", "forbids", "title")
"""Constraints on the wording, of which a problem has up to two."""
EXCLUDED_PAIRS: tuple[tuple[Kind, Kind], ...] = (
    ("json", "no_commas"), ("json", "starts"), ("json", "ends"), ("json", "title"), ("bullets", "title"),
    ("starts", "title"),
)  # fmt: skip
"""Pairs that contradict each other, or that no user would request together."""
UNSEEN_PAIRS: tuple[tuple[Kind, Kind], ...] = (
    ("bullets", "no_commas"), ("sentences", "starts"), ("lower", "contains"), ("ends", "forbids"),
)  # fmt: skip
"""Pairs that only the task set `unseen_pairs` has."""


class ConstrainedTextsSettings(TaskSettings):
    """The section `constrained_texts` of params.yaml."""

    states_answer: ClassVar[bool] = False
    topics: ClassVar[Sequence[str]] = TOPICS
    """Topics that the texts are about."""
    pairs_unseen: ClassVar[bool] = False
    """Whether every problem has one of the unseen pairs; if not, no problem has one."""

    def draw(self, random: Random) -> Task:
        """Draw an instruction about a topic, with its constraints."""
        kinds = self._draw_kinds(random)
        lower = "lower" in kinds
        drawn = [_DRAWN[kind](random, lower) for kind in kinds]
        while _clash([constraint for _, constraint in drawn]):
            drawn = [_DRAWN[kind](random, lower) for kind in kinds]
        ask = random.choice(ASKS).format(random.choice(self.topics))
        constraints = Constraints(constraints=tuple(constraint for _, constraint in drawn))
        answer = constraints.model_dump_json(exclude_defaults=True)
        return Task(" ".join([ask, *(sentence for sentence, _ in drawn)]), answer, len(drawn), ())

    def _draw_kinds(self, random: Random) -> list[Kind]:
        while True:
            count = random.randint(1 + self.pairs_unseen, 3)
            kinds = [random.choice(FORMS), *random.sample(WORDINGS, count - 1)]
            if not _has(kinds, EXCLUDED_PAIRS) and _has(kinds, UNSEEN_PAIRS) == self.pairs_unseen:
                return kinds

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Raise a `UserError`: this task set has no demonstrations, the policy writes its own texts."""
        raise UserError("demonstrations: this task set has none")


def _has(kinds: Sequence[Kind], pairs: Sequence[tuple[Kind, Kind]]) -> bool:
    return any(pair in pairs or pair[::-1] in pairs for pair in combinations(kinds, 2))


def _clash(constraints: Sequence[Constraint]) -> bool:
    """Return whether another constraint demands a forbidden word."""
    demanded = {word.casefold() for each in constraints if each.kind != "forbids" for word in each.text.split()}
    return any(each.text.casefold() in demanded for each in constraints if each.kind == "forbids")


def _words(random: Random, lower: bool) -> tuple[str, Constraint]:
    least, most = random.choice(WORD_RANGES)
    return f"Use {least} to {most} words.", Constraint(kind="words", least=least, most=most)


def _sentences(random: Random, lower: bool) -> tuple[str, Constraint]:
    count = random.choice((1, 2, 3))
    plural = "s" if count > 1 else ""
    return f"Write exactly {NUMBERS[count]} sentence{plural}.", Constraint(kind="sentences", least=count, most=count)


def _bullets(random: Random, lower: bool) -> tuple[str, Constraint]:
    count = random.choice((2, 3, 4))
    sentence = f'Answer with exactly {NUMBERS[count]} bullet points that begin with "- " or "* ".'
    return sentence, Constraint(kind="bullets", least=count, most=count)


def _json(random: Random, lower: bool) -> tuple[str, Constraint]:
    keys = random.choice(KEYS)
    return f'Answer in JSON with the keys "{keys[0]}" and "{keys[1]}".', Constraint(kind="json", keys=keys)


def _lower(random: Random, lower: bool) -> tuple[str, Constraint]:
    return "Write everything in lowercase letters, with no capital letters.", Constraint(kind="lower")


def _no_commas(random: Random, lower: bool) -> tuple[str, Constraint]:
    return "Do not use any commas.", Constraint(kind="no_commas")


def _starts(random: Random, lower: bool) -> tuple[str, Constraint]:
    phrase = random.choice(OPENINGS)
    phrase = phrase.lower() if lower else phrase
    return f'Begin your answer with the words "{phrase}".', Constraint(kind="starts", text=phrase)


def _ends(random: Random, lower: bool) -> tuple[str, Constraint]:
    phrase = random.choice(CLOSINGS)
    phrase = phrase.lower() if lower else phrase
    return f'End your answer with the words "{phrase}".', Constraint(kind="ends", text=phrase)


def _contains(random: Random, lower: bool) -> tuple[str, Constraint]:
    word = random.choice(INCLUDED)
    return f'Include the word "{word}".', Constraint(kind="contains", text=word)


def _forbids(random: Random, lower: bool) -> tuple[str, Constraint]:
    word = random.choice(AVOIDED)
    return f'Do not use the word "{word}".', Constraint(kind="forbids", text=word)


def _title(random: Random, lower: bool) -> tuple[str, Constraint]:
    example = "a title" if lower else "A title"
    return f"Give your answer a title in double angle brackets, such as <<{example}>>.", Constraint(kind="title")


_DRAWN: dict[Kind, Callable[[Random, bool], tuple[str, Constraint]]] = {
    "words": _words,
    "sentences": _sentences,
    "bullets": _bullets,
    "json": _json,
    "lower": _lower,
    "no_commas": _no_commas,
    "starts": _starts,
    "ends": _ends,
    "contains": _contains,
    "forbids": _forbids,
    "title": _title,
}
"""Function of each kind that draws a constraint and the sentence that demands it; its second argument is whether the
text must be in lower case."""
SETTINGS = ConstrainedTextsSettings
