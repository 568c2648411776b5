"""Instructions to a robot at home, with several words for a skill or an object, and `it` for the object before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from models.agents.environments.task_sequence import TaskSequence
from models.agents.small_sets.rows import SmallSet, SmallTask

Names = dict[str, tuple[str, ...]]
"""Words for each object."""
SKILLS: dict[str, tuple[str, ...]] = {
    "go": ("to",),
    "find": ("what",),
    "take": ("what", "from"),
    "put": ("what", "on"),
    "bring": ("what", "to"),
    "open": ("what",),
    "light": ("what",),
}
"""Parameters of each skill."""
THINGS: Names = {
    "cup": ("cup", "mug"),
    "book": ("book", "novel"),
    "ball": ("ball",),
    "pen": ("pen", "biro"),
    "bag": ("bag", "sack"),
}
SPOTS: Names = {"sofa": ("sofa", "couch"), "desk": ("desk",), "shelf": ("shelf", "rack"), "bed": ("bed",)}
ROOMS: Names = {"kitchen": ("kitchen",), "hall": ("hall", "lobby"), "study": ("study", "office")}
DOORS: Names = {"door": ("door",), "window": ("window",), "box": ("box", "crate")}
LAMPS: Names = {"lamp": ("lamp", "light")}
PEOPLE: Names = {"me": ("me",), "ann": ("ann",), "bob": ("bob",)}
FORMS: tuple[tuple[str, tuple[str, ...], tuple[Names, ...]], ...] = (
    ("go", ("go to the {}", "walk to the {}", "move into the {}"), (ROOMS,)),
    ("find", ("find the {}", "look for the {}"), (THINGS,)),
    ("take", ("take the {} from the {}", "get the {} from the {}", "pick the {} off the {}"), (THINGS, SPOTS)),
    ("put", ("put the {} on the {}", "place the {} on the {}", "leave the {} on the {}"), (THINGS, SPOTS)),
    ("bring", ("bring the {} to {}", "carry the {} to {}", "hand the {} to {}"), (THINGS, PEOPLE)),
    ("open", ("open the {}", "unlock the {}"), (DOORS,)),
    ("light", ("turn on the {}", "switch on the {}"), (LAMPS,)),
)
"""Skill, ways to ask for it, and names of the objects that its parameters may have."""
JOINS = (" and ", " then ", " , then ")


@dataclass(frozen=True)
class TaskSequenceSet(SmallSet):
    """Instructions of one to three tasks."""

    sound: float = 0.5
    """Share of the demonstrations with all calls; the others leave out the last one."""

    def draw(self, random: Random) -> SmallTask:
        """Draw an instruction and its calls."""
        calls: list[dict[str, object]] = []
        text, before = "", ""
        for _ in range(random.randint(1, 3)):
            skill, ways, kinds = random.choice(FORMS)
            objects = [random.choice(list(names)) for names in kinds]
            way = random.choice(ways)
            if kinds[0] is THINGS and before and random.random() < 0.5:
                objects[0], way = before, way.replace("the {}", "{}", 1)
                words = [
                    "it",
                    *(random.choice(names[each]) for names, each in zip(kinds[1:], objects[1:], strict=True)),
                ]
            else:
                words = [random.choice(names[each]) for names, each in zip(kinds, objects, strict=True)]
            before = objects[0] if kinds[0] is THINGS else before
            text += (random.choice(JOINS) if text else "") + way.format(*words)
            calls.append({"name": skill, "arguments": dict(zip(SKILLS[skill], objects, strict=True))})
        return SmallTask(text, json.dumps({"tools": SKILLS, "calls": calls}), len(calls))

    def script(self, random: Random, task: SmallTask) -> tuple[str, Sequence[str]]:
        """Draw a demonstration: all calls, or all but the last one."""
        calls = [json.dumps(call, separators=(",", ":")) for call in json.loads(task.answer)["calls"]]
        if len(calls) > 1 and random.random() >= self.sound:
            return "early", [*calls[:-1], "done"]
        return "none", [*calls, "done"]


SET = TaskSequenceSet(TaskSequence, problems={"train": 600, "validation": 60, "gate": 120}, demonstrations=600)
