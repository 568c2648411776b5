"""The task set `roads`: a plan follows from what is on the road, which the picture shows."""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np

from models.base.images import content_of, images_in
from models.base.pictures import decoded
from models.task_sets.drawing import make_rows
from models.task_sets.roads import CAR, LIGHTS, OWN, PLANS, RoadsSettings, RoadView, drawn_road, misread, view_of

SETTINGS = RoadsSettings(
    problems={"train": 400, "validation": 60, "gate": 60},
    demonstrations={"train": 800},
    roads=2000,
    quiet=0.6,
    misread=0.3,
)
QUIET = RoadView("none", "none", "free", "free", "straight")


def test_plans_by_hand() -> None:
    assert QUIET.plan == "keep straight"
    assert replace(QUIET, light="green").plan == "speed straight"
    assert replace(QUIET, light="green", goal="left").plan == "keep left"
    assert replace(QUIET, goal="right", right="taken").plan == "keep straight"
    assert replace(QUIET, ahead="far", goal="left").plan == "slow straight"
    assert replace(QUIET, ahead="near").plan == "slow left"
    assert replace(QUIET, ahead="near", left="none").plan == "slow right"
    assert replace(QUIET, ahead="near", left="taken", right="none").plan == "stop straight"
    assert replace(QUIET, light="red", goal="left").plan == "stop straight"


def test_the_picture_shows_what_the_view_states() -> None:
    for number in range(200):
        view, reference = drawn_road(1, number, 0.5)
        pixels = np.asarray(decoded(content_of(images_in(reference)[0]), reference))
        own = (pixels == OWN).all(-1).nonzero()[1].mean()
        rows, columns = (pixels == CAR).all(-1).nonzero()
        ahead = rows[(abs(columns - own) < 4) & (rows < 22)]
        assert view.ahead == ("none" if not len(ahead) else "near" if ahead.mean() > 13 else "far")
        beside = columns[rows > 24]
        assert (view.left == "taken") == bool((beside < own - 4).any())
        assert (view.right == "taken") == bool((beside > own + 4).any())
        lit = {name for name, colour in LIGHTS.items() if (pixels == colour).all(-1).any()}
        assert lit == ({view.light} - {"none"})


def test_quiet_roads_keep_on_and_every_plan_occurs() -> None:
    random = Random(0)
    assert {view_of(random, 1.0).ahead for _ in range(200)} == {"none"}
    plans = Counter(view_of(random, 0.6).plan for _ in range(4000))
    assert set(plans) == set(PLANS)
    assert plans["keep straight"] > 2 * plans["slow right"]


def test_a_misread_view_differs_in_one_thing() -> None:
    random, seen = Random(0), set()
    for _ in range(100):
        thing, other = misread(random, QUIET)
        seen.add(thing)
        assert getattr(other, thing) != getattr(QUIET, thing)
        assert replace(other, **{thing: getattr(QUIET, thing)}) == QUIET
    assert seen == {"light", "ahead", "goal"}


def test_the_plan_of_a_working_follows_from_it_and_a_picture_is_in_one_split() -> None:
    rows = make_rows(SETTINGS)
    flawed = 0
    for row in rows["demonstrations"]["train"]:
        working, _, plan = str(row["completion"]).partition(" #### ")
        assert RoadView(*working.split()[1::2]).plan == plan  # type: ignore[arg-type]
        assert row["flaw"] != "none" or plan == row["answer"] == PLANS[int(row["level"]) - 1]
        flawed += row["flaw"] != "none"
    assert 0.24 < flawed / 800 < 0.36
    problems = rows["problems"]
    names = [{name for row in problems[split] for name in images_in(str(row["prompt"]))} for split in problems]
    assert all(not first & second for at, first in enumerate(names) for second in names[at + 1 :])
