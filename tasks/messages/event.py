"""Notification events: a sentence, a link, and an id by which a receiver recognises a repeat."""

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
    """An event that happened once."""

    kind: Kind
    text: str
    """One sentence."""
    link: str = ""
    at: str = field(default_factory=clock.stamp)
    event_id: str
    """Equal for repeats of the same event; see `identity`."""

    def as_json(self) -> bytes:
        """Return the request body: `text`, which chats show, and the other fields."""
        shown = f"{self.text} {self.link}".strip()
        return json.dumps({**asdict(self), "text": shown}, ensure_ascii=False).encode()


def identity(kind: Kind, facts: Mapping[str, object]) -> str:
    """Return the id of an event: a hash of its kind and its subject, such as model and version, but not of its time."""
    return hashlib.sha256(json.dumps([kind, facts], sort_keys=True).encode()).hexdigest()[:32]
