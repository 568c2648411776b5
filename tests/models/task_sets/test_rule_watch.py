"""The task set `rule_watch`: broken rules by their definition, frames of one split, and flawed demonstrations."""

import re

from models.base.images import images_in
from models.task_sets.drawing import draw_tasks, make_rows
from models.task_sets.rule_watch import RuleWatchSettings, broken_rules, working
from models.task_sets.scenes import items_of, picture

SETTINGS = RuleWatchSettings(
    problems={"train": 300, "validation": 60, "gate": 60}, demonstrations={"train": 600}, pictures=400, flawed=0.3
)
RED, BLUE = ("red", "cross", "topleft"), ("blue", "square", "topright")
FORM = re.compile(r"((\d \w+ \w+ \w+)( ; \d \w+ \w+ \w+)* )?#### (none|\d( ; \d)*)")


def test_broken_rules_by_hand() -> None:
    rules = ["red", "circle", "blue square"]
    assert broken_rules(rules, [[RED], [BLUE]]) == {1: "red cross topleft", 3: "blue square topright"}
    assert broken_rules(["red square", "blue"], [[RED]]) == {}
    assert working({1: "red cross topleft", 3: "blue square topright"}) == (
        "1 red cross topleft ; 3 blue square topright #### 1 ; 3"
    )
    assert working({}) == "#### none"


def test_the_answer_follows_from_the_frames() -> None:
    seen = {reference: items_of(shapes) for shapes, _, reference in (picture(1, number, 32) for number in range(400))}
    levels = set()
    for task in draw_tasks(SETTINGS, "train"):
        first, second = task.prompt.split()[:2]
        assert first != second
        rules = re.split(r" ?\d ", task.prompt.partition(" rules ")[2])[1:]
        broken = broken_rules(rules, [seen[first], seen[second]])
        assert task.answer == (" ; ".join(map(str, broken)) or "none")
        levels.add(task.level)
    assert levels == {1, 2, 3, 4}


def test_all_frames_of_a_film_are_in_its_split() -> None:
    rows = make_rows(SETTINGS)["problems"]
    names = [{name for row in rows[split] for name in images_in(str(row["prompt"]))} for split in rows]
    assert all(not first & second for at, first in enumerate(names) for second in names[at + 1 :])


def test_a_flawed_demonstration_overlooks_or_reports() -> None:
    rows = make_rows(SETTINGS)["demonstrations"]["train"]
    assert {row["flaw"] for row in rows} == {"none", "overlooked", "reported"}
    for row in rows:
        completion, answer = str(row["completion"]), str(row["answer"])
        assert FORM.fullmatch(completion)
        stated, expected = ({*text.split(" ; ")} - {"none"} for text in (completion.split("#### ")[1], answer))
        flaw = row["flaw"]
        assert (stated == expected, stated < expected, stated > expected) == (
            flaw == "none",
            flaw == "overlooked",
            flaw == "reported",
        )
