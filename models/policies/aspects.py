"""Subsets of a policy's settings, one for each kind of work: results are kept if only other settings change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from models.policies.build import PolicySettings
from models.policies.vision import VisionSettings
from models.text.tokenizer import TokenizerSettings


@dataclass(frozen=True, kw_only=True)
class ReadingSettings:
    """Settings that decide how texts are encoded as tokens. Of a base model only the tokenizer is read, no weights."""

    base: str | None
    tokenizer: TokenizerSettings
    chat: bool
    system: str | None
    trust_remote_code: bool
    vision: VisionSettings | None = None
    """Vision tower of a policy without a base model."""


class InUse(Protocol):
    """Interface of the settings for sampling and scoring a policy whose files exist already."""

    @property
    def chat(self) -> bool: ...
    @property
    def system(self) -> str | None: ...
    @property
    def trust_remote_code(self) -> bool: ...
    @property
    def room(self) -> int | None:
        """Longest sequence of a policy without a base model, in tokens; None: the limit of the base model."""


@dataclass(frozen=True, kw_only=True)
class UseSettings:
    """Settings for sampling and scoring a policy, as values (see `InUse`)."""

    chat: bool
    system: str | None
    trust_remote_code: bool
    room: int | None


def reading_of(policy: PolicySettings) -> ReadingSettings:
    """Select the settings that decide how texts are encoded as tokens."""
    return ReadingSettings(
        base=policy.named_base,
        tokenizer=policy.tokenizer if policy.base is None else TokenizerSettings(),
        chat=policy.chat,
        system=policy.system,
        trust_remote_code=policy.trust_remote_code,
        vision=policy.size.vision if policy.base is None else None,
    )


def use_of(policy: PolicySettings) -> UseSettings:
    """Select the settings that sampling and scoring read."""
    return UseSettings(
        chat=policy.chat, system=policy.system, trust_remote_code=policy.trust_remote_code, room=policy.room
    )


def start_of(policy: PolicySettings, fitted: bool) -> PolicySettings:
    """Select the settings that determine the policy at the start of the loop; all others get their defaults.

    Args:
        policy: settings of the recipe.
        fitted: whether it is fine-tuned on demonstrations first; precision, adapters and prompt form then count too.
    """
    plain = PolicySettings()
    start = replace(policy, subnetwork=None)
    if policy.base is None:
        start = replace(start, lora=None, train=plain.train)  # a new model is fitted whole
    else:
        start = replace(start, size=plain.size, tokenizer=plain.tokenizer)
    if fitted:
        return start
    return replace(start, lora=None, train=plain.train, precision=plain.precision, chat=plain.chat, system=plain.system)
