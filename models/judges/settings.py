"""Who judges: a model folder, a recipe that makes one, a server, or the policy as the run began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from models.bounds import LARGEST, Positive
from models.policy.teacher import ServedSettings

KEY_VARIABLE = "REWARDFLOW_JUDGE_KEY"
"""Environment variable of a server's key, where a recipe names no other."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(ServedSettings):
    """Who judges, and how it is drawn. Stands under `judge:`. Where nothing says who, the policy as the run began
    does. A judge's recipe may have data of its own."""

    _key: ClassVar[str] = "judge"
    _least: ClassVar[int] = 0

    key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)] = KEY_VARIABLE
    """Environment variable whose value is sent to the server as its key; the key itself stands nowhere."""
    max_tokens: Positive = 64
    """Longest answer, in tokens. One that is cut is no verdict."""
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    """How answers are drawn; 0: the likeliest, of which further votes are copies."""
    chat: bool = False
    """Wrap questions in the chat template of a judge on this machine; a server does it by itself."""
    side_by_side: Annotated[int, Field(ge=1, le=1024)] = 8
    """Requests to a server that are under way at a time."""
    seconds: Annotated[float, Field(gt=0, le=LARGEST)] = 120.0
    """Longest that one request to a server may take."""
    tries: Annotated[int, Field(ge=1, le=100)] = 3
    """Requests that are made for a question before it counts as not answered."""
