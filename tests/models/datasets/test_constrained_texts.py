"""Constrained-text tasks: no contradictions, separate unseen pairs and topics, and prompts that state the checks."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from models.answers.constraints import Constraints, met
from models.base.errors import UserError
from models.task_sets.constrained_texts import (
    EXCLUDED_PAIRS,
    FORMS,
    TOPICS,
    UNSEEN_PAIRS,
    WORDINGS,
    ConstrainedTextsSettings,
)
from models.task_sets.drawing import make_rows
from models.task_sets.unseen_pairs import UnseenPairsSettings
from models.task_sets.unseen_topics import TOPICS as OTHER_TOPICS
from models.task_sets.unseen_topics import UnseenTopicsSettings

SETS = (ConstrainedTextsSettings, UnseenPairsSettings, UnseenTopicsSettings)


def drawn(kind: type[ConstrainedTextsSettings], count: int = 400) -> list[tuple[str, Constraints]]:
    settings, random = kind(problems={"train": 1}), Random(3)
    tasks = [settings.draw(random) for _ in range(count)]
    assert all(task.level == len(Constraints.model_validate_json(task.answer).constraints) for task in tasks)
    return [(task.prompt, Constraints.model_validate_json(task.answer)) for task in tasks]


def pairs(constraints: Constraints) -> set[frozenset[str]]:
    return {frozenset(pair) for pair in combinations([each.kind for each in constraints.constraints], 2)}


def example(constraints: Constraints) -> str:
    """Return a text that meets the constraints of a problem, for every kind of constraint in the sets."""
    by_kind = {each.kind: each for each in constraints.constraints}
    filler = "foo"
    start = by_kind["starts"].text if "starts" in by_kind else filler
    middle = f"{filler} {by_kind['contains'].text}" if "contains" in by_kind else filler
    end = by_kind["ends"].text if "ends" in by_kind else filler
    title = "<<a title>> " if "title" in by_kind else ""
    if "json" in by_kind:
        return "{" + ", ".join(f'"{key}": "{middle}"' for key in by_kind["json"].keys) + "}"
    if "bullets" in by_kind:
        lines = [f"- {middle}"] * (by_kind["bullets"].least - 1)
        return f"{start}\n" + "\n".join([*lines, f"- {end}"])
    if "sentences" in by_kind:
        count = by_kind["sentences"].least
        sentences = [*[middle] * (count - 1), f"{middle} {end}"]
        return title + f"{start} " + " ".join(f"{sentence}." for sentence in sentences)
    return title + " ".join([start, middle, *[filler] * by_kind["words"].least, end])


@pytest.mark.parametrize("kind", SETS)
def test_no_problem_has_constraints_that_exclude_each_other(kind: type[ConstrainedTextsSettings]) -> None:
    excluded = {frozenset(pair) for pair in EXCLUDED_PAIRS}
    for prompt, constraints in drawn(kind):
        assert not pairs(constraints) & excluded, prompt
        assert all(met(example(constraints), constraints)), (prompt, example(constraints))


def test_every_problem_has_one_form_and_up_to_two_wordings_and_all_kinds_occur() -> None:
    seen = set()
    for _, constraints in drawn(ConstrainedTextsSettings):
        kinds = [each.kind for each in constraints.constraints]
        assert kinds[0] in FORMS and len(set(kinds)) == len(kinds) <= 3 and set(kinds[1:]) <= set(WORDINGS)
        seen.update(kinds)
    assert seen == {*FORMS, *WORDINGS}


def test_the_unseen_pairs_occur_in_every_problem_of_their_set_and_in_no_other() -> None:
    unseen = {frozenset(pair) for pair in UNSEEN_PAIRS}
    met_in = {kind: [bool(pairs(constraints) & unseen) for _, constraints in drawn(kind)] for kind in SETS}
    assert all(met_in[UnseenPairsSettings])
    assert not any(met_in[ConstrainedTextsSettings]) and not any(met_in[UnseenTopicsSettings])


def test_the_unseen_topics_are_in_every_prompt_of_their_set_and_in_no_other() -> None:
    assert not set(TOPICS) & set(OTHER_TOPICS)
    asked = {kind: [prompt.split(". ")[0].split("? ")[0] for prompt, _ in drawn(kind)] for kind in SETS}
    assert all(any(topic in ask for topic in OTHER_TOPICS) for ask in asked[UnseenTopicsSettings])
    for kind in (ConstrainedTextsSettings, UnseenPairsSettings):
        assert all(any(topic in ask for topic in TOPICS) for ask in asked[kind])


def test_what_a_prompt_states_is_what_is_checked() -> None:
    for prompt, constraints in drawn(ConstrainedTextsSettings):
        for each in constraints.constraints:
            assert each.text in prompt and all(f'"{key}"' in prompt for key in each.keys)
            if each.kind == "words":
                assert f"{each.least} to {each.most} words" in prompt


def test_the_same_settings_give_the_same_rows_and_demonstrations_are_refused() -> None:
    settings = ConstrainedTextsSettings(problems={"train": 20, "validation": 5, "gate": 5})
    assert make_rows(settings) == make_rows(settings)
    with pytest.raises(UserError, match="this task set has none"):
        make_rows(ConstrainedTextsSettings(problems={"train": 2}, demonstrations={"train": 2}))
