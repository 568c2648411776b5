"""Parts of a policy's settings, each for work that reads no others: results are kept if only other settings change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from models.policies.build import PolicySettings
from models.text.tokenizer import TokenizerSettings


@dataclass(frozen=True, kw_only=True)
class ReadingSettings:
    """Settings that decide how texts become tokens. Only the tokenizer of a base is read, no weights."""

    base: str | None
    tokenizer: TokenizerSettings
    chat: bool
    system: str | None
    trust_remote_code: bool


class InUse(Protocol):
    """Settings for sampling and scoring a policy whose files exist already."""

    @property
    def chat(self) -> bool: ...
    @property
    def system(self) -> str | None: ...
    @property
    def trust_remote_code(self) -> bool: ...
    @property
    def room(self) -> int | None:
        """Longest sequence of a policy that the recipe makes, in tokens; None: the limit of the base."""


@dataclass(frozen=True, kw_only=True)
class UseSettings:
    """The settings of `InUse` as data."""

    chat: bool
    system: str | None
    trust_remote_code: bool
    room: int | None


def reading_of(policy: PolicySettings) -> ReadingSettings:
    """Return the settings that decide how texts become tokens."""
    return ReadingSettings(
        base=policy.base,
        tokenizer=policy.tokenizer if policy.base is None else TokenizerSettings(),
        chat=policy.chat,
        system=policy.system,
        trust_remote_code=policy.trust_remote_code,
    )


def use_of(policy: PolicySettings) -> UseSettings:
    """Return the settings that sampling and scoring read."""
    return UseSettings(
        chat=policy.chat, system=policy.system, trust_remote_code=policy.trust_remote_code, room=policy.room
    )


def start_of(policy: PolicySettings, fitted: bool) -> PolicySettings:
    """Return the settings that decide the initial policy of the loop; all others have their defaults.

    Args:
        policy: settings of the recipe.
        fitted: whether it learns from demonstrations first, in a precision and as adapters if these are set.
    """
    plain = PolicySettings()
    start = replace(policy, subnetwork=None)
    if policy.base is None:
        start = replace(start, lora=None)  # a new model is fitted whole
    else:
        start = replace(start, size=plain.size, tokenizer=plain.tokenizer)
    if fitted:
        return start
    return replace(start, lora=None, precision=plain.precision, chat=plain.chat, system=plain.system)
