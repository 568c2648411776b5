"""Kuhn poker whose players talk: a player words an action in one of several ways; the others read the plain action.

ada and bob play kuhn poker    | second queen bet | i call
"""

from __future__ import annotations

from random import Random

from models.task_sets.kuhn_poker import KuhnPokerSettings

WAYS = "{}", "i {}", "{} now", "well {}"


class KuhnTalkSettings(KuhnPokerSettings):
    """The section `kuhn_talk` of params.yaml."""

    def _worded(self, random: Random, action: str) -> str:
        return random.choice(WAYS).format(action)


SETTINGS = KuhnTalkSettings
