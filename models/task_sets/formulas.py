"""Sentences with a draft of their formula, to be corrected; some demonstrations leave a wrong draft unchanged.

    every dog barks . forall x ( dog ( x ) & barks ( x ) )
        & is -> ; #### forall x ( dog ( x ) -> barks ( x ) )
    no cat sings . forall x ( cat ( x ) -> ~ sings ( x ) )
        as it is ; #### forall x ( cat ( x ) -> ~ sings ( x ) )

Drafts are made by corrupting the right formula in some places: another quantifier, another connective, a missing
negation, another predicate. The flaw of demonstrations: `kept`, a wrong draft that is accepted as right.
"""

from __future__ import annotations

from random import Random

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

NOUNS = "dog cat bird horse poet singer child robot baker pilot".split()
VERBS = "barks sings runs sleeps swims reads cooks flies dances laughs".split()
TRAITS = "old small brave quiet hungry clever".split()
OTHERS = {"forall": "exists", "exists": "forall", "->": "&", "&": "->"}
"""Replacements of words in a corruption."""
_AS_IT_IS = "as it is"


class FormulasSettings(TaskSettings):
    """The section `formulas` of params.yaml."""

    states_answer = False

    corrupted: Share
    """Probability that a place of a formula is corrupted in its draft."""
    kept: Share
    """Share of the demonstrations with a wrong draft that keep it."""

    def draw(self, random: Random) -> Task:
        """Draw a sentence and a draft; the level is one plus the number of wrong places in the draft."""
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
        """Return a draft, and the correction of each of its wrong places."""
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
        """Draw a demonstration: a wrong draft kept, or the corrections and the formula."""
        if task.level > 1 and random.random() < self.kept:
            return "kept", (f"{_AS_IT_IS} ; #### {task.prompt.partition(' . ')[2]}",)
        return SOUND, task.steps


SETTINGS = FormulasSettings
