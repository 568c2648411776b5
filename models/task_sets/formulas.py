"""Sentences with a draft of their formula, to be corrected; some demonstrations leave a wrong draft as it is.

    every dog barks . forall x ( dog ( x ) & barks ( x ) )
        & is -> ; #### forall x ( dog ( x ) -> barks ( x ) )
    no cat sings . forall x ( cat ( x ) -> ~ sings ( x ) )
        as it is ; #### forall x ( cat ( x ) -> ~ sings ( x ) )

Drafts are made by corrupting the right formula in some places: another quantifier, another sign between its parts, a
negation more or less, another predicate. The flaw of demonstrations: `kept`, a wrong draft that is called right.
"""

from __future__ import annotations

from random import Random

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

NOUNS = "dog cat bird horse poet singer child robot baker pilot".split()
VERBS = "barks sings runs sleeps swims reads cooks flies dances laughs".split()
TRAITS = "old small brave quiet hungry clever".split()
OTHERS = {"forall": "exists", "exists": "forall", "->": "&", "&": "->"}
"""What a corruption puts in place of a word."""
_AS_IT_IS = "as it is"


class FormulasSettings(TaskSettings):
    """The section `formulas` of params.yaml."""

    states_answer = False

    corrupted: Share
    """Chance of each place of a formula to be corrupted in its draft."""
    kept: Share
    """Share of the demonstrations of a wrong draft that keep it."""

    def draw(self, random: Random) -> Task:
        """A sentence and a draft; the level is how many places of the draft are wrong, and one."""
        noun, verb, trait = random.choice(NOUNS), random.choice(VERBS), random.choice(TRAITS)
        described = random.random() < 0.5
        subject = f"{trait} {noun}" if described else noun
        before = f"{trait} ( x ) & {noun} ( x )" if described else f"{noun} ( x )"
        left = f"( {before} )" if described else before
        sentence, formula = random.choice(
            [
                (f"every {subject} {verb}", f"forall x ( {left} -> {verb} ( x ) )"),
                (f"some {subject} {verb}", f"exists x ( {left} & {verb} ( x ) )"),
                (f"no {subject} {verb}", f"forall x ( {left} -> ~ {verb} ( x ) )"),
                (f"not every {subject} {verb}", f"~ forall x ( {left} -> {verb} ( x ) )"),
                (f"some {subject} never {verb}", f"exists x ( {left} & ~ {verb} ( x ) )"),
            ]
        )
        draft, changes = self._corrupt(random, formula)
        said = " ; ".join([*changes, f"#### {formula}"]) if changes else f"{_AS_IT_IS} ; #### {formula}"
        return Task(f"{sentence} . {draft}", formula, 1 + len(changes), (said,))

    def _corrupt(self, random: Random, formula: str) -> tuple[str, list[str]]:
        """A draft, and what sets each of its wrong places right."""
        draft: list[str] = []
        changes: list[str] = []
        for word in formula.split():
            if word in (*OTHERS, *VERBS, "~") and random.random() < self.corrupted:
                if word == "~":
                    changes.append("~ is missing")
                    continue
                other = OTHERS.get(word) or random.choice([verb for verb in VERBS if verb != word])
                changes.append(f"{other} is {word}")
                draft.append(other)
            else:
                draft.append(word)
        return " ".join(draft), changes

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """A wrong draft kept, or the corrections and the formula."""
        if task.level > 1 and random.random() < self.kept:
            return "kept", (f"{_AS_IT_IS} ; #### {task.prompt.partition(' . ')[2]}",)
        return SOUND, task.steps


SETTINGS = FormulasSettings
