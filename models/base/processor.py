"""Name and instruction sets of this machine's processor, as far as the system reports them."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
BFLOAT16_PRODUCTS = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
"""Instruction sets that multiply in bfloat16, as Linux names them; `bf16` is ARM's."""


@dataclass(frozen=True)
class Processor:
    """A processor's name and instruction sets."""

    name: str
    flags: frozenset[str] | None
    """Instruction sets as Linux names them; None if the system does not report them."""

    @property
    def multiplies_bfloat16(self) -> bool | None:
        """Whether it multiplies in bfloat16 natively, without emulation; None if the system does not report it."""
        return bool(self.flags & BFLOAT16_PRODUCTS) if self.flags else None


def processor() -> Processor:
    """Read the name and the instruction sets of this machine's first processor."""
    unnamed = platform.processor() or platform.machine()
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return Processor(unnamed, None)
    facts: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip().lower(), value.strip())
    flags = facts.get("flags") or facts.get("features") or ""  # features: on ARM
    return Processor(facts.get("model name") or unnamed, frozenset(flags.split()))
