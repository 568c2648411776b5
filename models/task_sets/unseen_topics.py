"""Instructions of `constrained_texts` about topics that occur in none of its splits, to measure the transfer.

The whole set is held out: it has problems of the gate only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from models.task_sets.constrained_texts import ConstrainedTextsSettings, read_topics

TOPICS = read_topics(
    """squirrels; camels; parrots; goats; crabs; jellyfish; cacti; fog; hail; caves; glaciers; swamps; comets;
    gravity; magnets; bananas; onions; mushrooms; pancakes; noodles; pepper; lemonade; buses; tunnels; lighthouses;
    harbors; theaters; bakeries; post offices; hospitals; drums; pianos; puppets; tennis; skating; climbing; sailing;
    gardeners; painters; judges; batteries; printers; telescopes; scissors; blankets; gloves; backpacks; keys; copper;
    clay; laughter; patience; weddings; picnics"""
)


class UnseenTopicsSettings(ConstrainedTextsSettings):
    """The section `unseen_topics` of params.yaml."""

    topics: ClassVar[Sequence[str]] = TOPICS


SETTINGS = UnseenTopicsSettings
