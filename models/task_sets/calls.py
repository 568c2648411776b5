"""Short requests, each answered by one of six tools; most demonstrations begin with a wrong call.

    15 teas please      {"name":"buy","arguments":{"item":"tea","count":"15"}}

The flaw of demonstrations: `retried`, a call with an error of some category, the reply of the environment, and then the
right call. A problem's level is the number of its parameters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import ClassVar

from models.agents.play.named_calls import Expected, category_of
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

TOOLS: dict[str, tuple[str, ...]] = {
    "buy": ("item", "count"),
    "mail": ("to", "text"),
    "mail_all": ("text",),
    "weather": ("city", "day"),
    "weather_now": ("city",),
    "wake": ("hour",),
}
WORDS: dict[str, tuple[str, ...]] = {
    "item": ("cup", "egg", "fig", "ham", "ink", "jam", "nut", "oil", "pen", "pie", "rug", "tea"),
    "count": tuple(map(str, range(2, 30))),
    "to": ("ann", "bob", "eva", "ian", "joe", "kim", "leo", "mia", "ned", "pam", "ray", "sue"),
    "text": ("bye", "call", "come", "go", "hi", "no", "stop", "thanks", "wait", "yes"),
    "city": ("bonn", "cork", "kyiv", "lima", "lyon", "nice", "oslo", "pisa", "riga", "rome"),
    "day": ("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
    "hour": tuple(map(str, range(1, 24))),
}
ASKED: dict[str, str] = {
    "buy": "get {count} {item}",
    "mail": "tell {to} {text}",
    "mail_all": "tell all {text}",
    "weather": "{city} on {day}?",
    "weather_now": "{city}?",
    "wake": "up at {hour}",
}


class CallsSettings(TaskSettings):
    """The section `calls` of params.yaml."""

    states_answer: ClassVar[bool] = False
    retried: Share
    """Share of the demonstrations whose first call is wrong."""

    def draw(self, random: Random) -> Task:
        """Draw a request; tools with more parameters are more frequent, since they have more possible requests."""
        name = random.choices(list(TOOLS), weights=[len(WORDS[TOOLS[tool][0]]) ** len(TOOLS[tool]) for tool in TOOLS])[
            0
        ]
        arguments = {parameter: random.choice(WORDS[parameter]) for parameter in TOOLS[name]}
        answer = json.dumps({"tools": TOOLS, "name": name, "arguments": arguments})
        return Task(ASKED[name].format(**arguments), answer, len(arguments), (call(name, arguments),))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: the right call, with probability `retried` after a wrong one."""
        if random.random() >= self.retried:
            return SOUND, task.steps
        expected = Expected.model_validate_json(task.answer)
        wrong = mistaken(random, expected)
        return "retried", (wrong, f"error: {category_of(wrong, expected).replace('_', ' ')}", *task.steps)


def call(name: str, arguments: Mapping[str, str]) -> str:
    """Return a call as text."""
    return json.dumps({"name": name, "arguments": dict(arguments)}, separators=(",", ":"))


def mistaken(random: Random, expected: Expected) -> str:
    """Draw a wrong call; each of five kinds of mistake is equally likely."""
    name, arguments = expected.name, dict(expected.arguments)
    parameter = random.choice(sorted(arguments))
    kind = random.choice(["unreadable", "unknown_tool", "wrong_tool", "missing_parameter", "wrong_value"])
    if kind == "unreadable":
        return call(name, arguments)[:-1]
    if kind == "unknown_tool":
        return call(f"{name}s", arguments)
    if kind == "wrong_tool":
        return call(random.choice([tool for tool in TOOLS if tool != name]), arguments)
    if kind == "missing_parameter":
        return call(name, {key: value for key, value in arguments.items() if key != parameter})
    arguments[parameter] = random.choice([word for word in WORDS[parameter] if word != arguments[parameter]])
    return call(name, arguments)


SETTINGS = CallsSettings
