"""Settings of the judge: a model folder, a recipe that makes one, a server, or the run's initial policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from models.base.bounds import LARGEST, Positive
from models.policies.teacher import RoleSettings

KEY_VARIABLE = "REWARDFLOW_JUDGE_KEY"
"""Environment variable of a server's key, if the recipe names no other."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(RoleSettings):
    """Settings of the judge and of its sampling, in the section `judge:`. The default judge is the run's initial
    policy. A judge's recipe may have data of its own."""

    _key: ClassVar[str] = "judge"
    _least: ClassVar[int] = 0

    key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)] = KEY_VARIABLE
    """Environment variable whose value is sent to the server as its key; the key itself is not stored anywhere."""
    max_tokens: Positive = 64
    """Maximum length of an answer, in tokens. A longer answer is cut and has no verdict."""
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    """Sampling temperature of the answers; 0: greedy, so that further votes are copies."""
    chat: bool = False
    """Whether to wrap questions in the chat template of a local judge; a server applies its own."""
    side_by_side: Annotated[int, Field(ge=1, le=1024)] = 8
    """Maximum number of concurrent requests to a server."""
    seconds: Annotated[float, Field(gt=0, le=LARGEST)] = 120.0
    """Timeout of one request to a server, seconds."""
    tries: Annotated[int, Field(ge=1, le=100)] = 3
    """Requests per question before it counts as unanswered."""
