"""Made-up documents of four short sentences, and topics whose queries prefer certain synonyms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from models.agents.environments.rank_attack import STOP, RankAttack, Synonyms
from models.agents.small_sets.rows import DOCUMENTS, SmallSet, SmallTask

SYNONYMS: Synonyms = (
    ("car", "auto", "motor"),
    ("house", "home", "villa"),
    ("shop", "store", "market"),
    ("trip", "tour", "travel"),
    ("fix", "repair", "mend"),
    ("doctor", "medic", "healer"),
    ("child", "kid", "youth"),
    ("road", "street", "lane"),
    ("cash", "money", "funds"),
    ("meal", "dinner", "supper"),
)
FORMS = ("the {} is old", "we saw a {} today", "they talk of the {}", "a {} near the lake", "one more {} for all")
FILE = "rank_attack.jsonl"


def document(random: Random, words: Sequence[str]) -> str:
    """Draw a document with a sentence about each word, in random order."""
    forms = random.sample(FORMS, len(words))
    return STOP.join(form.format(word) for form, word in zip(forms, random.sample(words, len(words)), strict=True))


@dataclass(frozen=True)
class RankAttackSet(SmallSet):
    """Topics of three groups of synonyms, each with a preferred word."""

    texts: int = 80
    """Number of documents."""
    sound: float = 0.15
    """Share of the demonstrations whose edits are those of the topic; the others are random."""

    def documents(self) -> tuple[str, Sequence[str]]:
        """Draw the documents, each about four of the groups of synonyms."""
        random = Random(self.seed)
        drawn = [[random.choice(group) for group in random.sample(SYNONYMS, 4)] for _ in range(self.texts)]
        return FILE, [document(random, words) for words in drawn]

    def draw(self, random: Random) -> SmallTask:
        """Draw a topic and a document that has none of its preferred words."""
        groups = random.sample(SYNONYMS, 3)
        preferred = [random.choice(group) for group in groups]
        own = [random.choice([word for word in group if word not in preferred]) for group in groups]
        first, second, third = preferred
        queries, later = [f"{first} {second}", f"{third} {first}"], [f"{second} {third}", f"{second} {first}"]
        text = document(random, own)
        answer = json.dumps({"document": text, "queries": queries, "later": later})
        return SmallTask(f"queries {' | '.join(queries)} : {text}", answer, len(groups))

    def script(self, random: Random, task: SmallTask) -> tuple[str, Sequence[str]]:
        """Draw edits: those that put the preferred words into the document, or random ones."""
        known = json.loads(task.answer)
        words, wanted = known["document"].split(), set(" ".join(known["queries"]).split())
        sound = random.random() < self.sound
        edits = []
        for group in SYNONYMS:
            if old := next((word for word in group if word in words), None):
                choices = [word for word in group if word != old]
                edits.append(
                    f"{old} {next(word for word in choices if word in wanted) if sound else random.choice(choices)}"
                )
        random.shuffle(edits)
        front = f"front {random.randint(1, 3)}"
        if sound:
            shared = known["queries"][0].split()[0]  # the word of both queries
            group = next(group for group in SYNONYMS if shared in group)
            place = next(n for n, part in enumerate(known["document"].split(STOP), 1) if set(group) & set(part.split()))
            return "none", [*edits, f"front {place}"]
        turns = random.sample([*edits, front, "done"], 4)
        return "aimless", [*turns[: turns.index("done") + 1]] if "done" in turns else turns


SET = RankAttackSet(lambda: RankAttack(documents=str(DOCUMENTS / FILE), synonyms=SYNONYMS))
