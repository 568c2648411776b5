"""Strategies at a table: a partner's model plays the other seats, and the mask admits only legal actions."""

from dataclasses import replace
from pathlib import Path

from models.agents.environments.table import Table
from models.agents.environments.tools import Tools
from models.agents.play.play import play
from models.agents.play.speakers import frozen_folder
from models.agents.strategies.masked_actions import MaskedActions
from models.agents.strategy import Strategic
from models.engines.engine import Sampling
from models.method.environment import EpisodeSettings
from models.method.episode import EpisodeLimits
from models.method.problem import Problem
from tests.support.tiny_strategies import BYTES, Scripted

LIMITS = EpisodeLimits(turns=4, turn_tokens=None, seconds=10.0, at_last_turn="kept", when_stuck="masked")
ACTIONS = {"check", "bet", "call", "fold"}


def test_beside_a_partner_the_seats_of_others_are_the_model_of_its_folder(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    table = Table().with_partner(tmp_path)
    assert table.several and table.asks_frozen and table.measured == table
    assert [seat.speaker for seat in table.seats(Problem("p", ""))] == ["policy", "frozen"]
    assert table.frozen == tmp_path == frozen_folder(replace(table), None)
    assert Tools().with_partner(tmp_path) is None


def test_a_policy_that_speaks_nonsense_plays_by_the_rules_under_the_mask() -> None:
    settings = EpisodeSettings(environment=Table(others="uniform"), limits=LIMITS, role="user")
    problems = [Problem("p", "play", tokens=tuple(BYTES.prompts(["play"])[0]))]
    sampling = Sampling(max_tokens=80, samples=60, log_probs=False)
    nonsense = Scripted(lambda text, seed: "nonsense", lambda text, said: 0.25)

    def said(engine: object) -> list[list[str]]:
        (group,) = play(engine, BYTES, settings, problems, sampling, 5)  # type: ignore[arg-type]
        return [[turn.text for turn in episode.turns] for episode in group]

    assert {turn for turns in said(nonsense) for turn in turns} == {"nonsense"}
    strategic = Strategic(nonsense, BYTES, MaskedActions(), 4096)
    masked = said(strategic)
    assert {turn for turns in masked for turn in turns} == ACTIONS
    assert strategic.policy.spent.calls == 2 * strategic.policy.spent.turns  # two actions at every information set
