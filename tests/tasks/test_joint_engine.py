"""A strategy that chooses tokens together with other models is decoded by transformers, and this is reported."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from models.agents.strategies.combined import Combined
from models.agents.strategies.vote import Vote
from models.agents.strategy import Strategy
from models.engines.engine import EngineSettings
from tasks.compute import measuring
from tasks.compute.measuring import engine_settings


@pytest.mark.parametrize(
    ("strategy", "installed", "name", "lines"),
    [
        (Combined(), True, "transformers", 1),
        (Combined(), False, "transformers", 0),
        (Combined(b=0.0), True, "vllm", 0),
        (Vote(), True, "vllm", 0),
        (None, True, "vllm", 0),
    ],
)
def test_only_a_joint_strategy_changes_the_engine(
    strategy: Strategy | None,
    installed: bool,
    name: str,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(measuring, "has_vllm", lambda: installed)
    recipe: Any = SimpleNamespace(engine=EngineSettings(name="vllm", max_sequences=7))
    with caplog.at_level(logging.WARNING, "rewardflow.steps"):
        settings = engine_settings("evaluate", recipe, strategy)
    assert settings == EngineSettings(name=name, max_sequences=7)  # type: ignore[arg-type]
    assert len(caplog.messages) == lines
