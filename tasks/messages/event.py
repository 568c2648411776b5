"""What people are told: one sentence, a link, and an id by which a repeat can be dropped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from tasks.host import clock

Kind = Literal["promoted", "waiting", "refused", "stopped", "worse", "drifted", "silent"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened once."""

    kind: Kind
    text: str
    """One sentence."""
    link: str = ""
    at: str = field(default_factory=clock.stamp)
    event_id: str
    """Equal wherever the same thing is told again; see `identity`."""

    def as_json(self) -> bytes:
        """What is sent: `text`, which chats show, and the other fields."""
        shown = f"{self.text} {self.link}".strip()
        return json.dumps({**asdict(self), "text": shown}, ensure_ascii=False).encode()


def identity(kind: Kind, facts: Mapping[str, object]) -> str:
    """The id of an event: of its kind and of what it is about, such as the model and the version, not of the time."""
    return hashlib.sha256(json.dumps([kind, facts], sort_keys=True).encode()).hexdigest()[:32]
