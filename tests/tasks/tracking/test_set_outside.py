"""A champion set outside Rewardflow is recorded by the next change of an alias, and not only by the next training."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from prefect.logging import disable_run_logger
from test_gate_promotion import NAME, RECIPE
from test_registry_and_lineage import made

import flows.train
from flows.cli.rollback import rollback
from models.base.errors import UserError
from tasks.tracking import aliases, by_hand, registry, runs, store, tags
from tasks.tracking.by_hand import PendingChampion

POLICY = "policy"


@pytest.fixture
def set_by_hand(home: Path, policy_folder: Path) -> None:
    """Make four versions. Version 1 was champion, then 2; then a person set 3, which is not recorded yet."""
    made(policy_folder, 4)
    for version in (1, 2):
        aliases.promote(POLICY, version, why="gate")
    set_alias(POLICY, 3)


def set_alias(name: str, version: int) -> None:
    store.client().set_registered_model_alias(name, registry.CHAMPION, str(version))


def having(*wanted: str) -> list[int | None]:
    there = [registry.by_alias(POLICY, alias) for alias in wanted]
    return [version.version if version else None for version in there]


@pytest.mark.rotating(of=6)
def test_a_rollback_after_a_champion_set_outside_goes_back_to_the_one_it_replaced(set_by_hand):
    assert aliases.rollback(POLICY).version == 2
    assert having(registry.CHAMPION, registry.PREVIOUS) == [2, 3]
    assert "version 3 (noticed: set outside Rewardflow" in aliases.history(POLICY)[1]


@pytest.mark.rotating(of=6)
def test_a_promotion_by_command_records_the_champion_set_outside_that_it_replaces(set_by_hand):
    aliases.promote(POLICY, 4)
    assert having(registry.CHAMPION, registry.PREVIOUS) == [4, 3]
    assert [line.split(" UTC ")[1][:9] for line in aliases.history(POLICY)] == [f"version {n}" for n in (4, 3, 2, 1)]


@pytest.mark.rotating(of=6)
def test_a_promotion_that_is_refused_for_it_has_recorded_it(set_by_hand):
    with pytest.raises(UserError, match="the champion is now version 3: evaluate it again"):
        aliases.promote(POLICY, 4, why="gate", judged_against=2)
    assert having(registry.PREVIOUS) == [2] and by_hand.waiting(POLICY) == PendingChampion(3, against=2)


@pytest.mark.rotating(of=6)
def test_the_command_says_what_it_noticed(set_by_hand, home: Path, monkeypatch, capsys):
    monkeypatch.setenv("REWARDFLOW_HOME", str(home))
    rollback(POLICY)
    noticed, done = capsys.readouterr().out.splitlines()
    assert noticed.startswith("policy: version 3 was made champion outside Rewardflow, instead of version 2")
    assert done == "champion of policy: version 2"


class Reached(Exception):
    """Raised when the run reaches the evaluation."""


@pytest.mark.rotating(of=6)
def test_a_champion_set_while_a_policy_learns_is_noticed_before_the_candidate_is_measured(
    home: Path, policy_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    run = runs.open_flow_run("arithmetic", "night")
    model = registry.log_model(run, policy_folder, "policy", "text-generation")
    for _ in range(2):
        registry.register(NAME, model)
    aliases.promote(NAME, 1, why="gate")

    def trained(opened: object, refresh: bool, resume: bool) -> SimpleNamespace:
        set_alias(NAME, 2)
        tuned = SimpleNamespace(links={}, metrics={}, headline="")
        rest = {"validated": None, "warmed": None, "rewarded": None, "made": tuned}
        return SimpleNamespace(steps=[], version=SimpleNamespace(digest="d"), tuned=tuned, **rest)

    def reached(training: object, champion: registry.VersionInfo, model: str) -> None:
        assert champion.version == 2 and by_hand.waiting(NAME) == PendingChampion(2, against=1)
        raise Reached

    monkeypatch.setattr(flows.train, "train_policy", trained)
    monkeypatch.setattr(flows.train, "why_not_learned", lambda tuned: "")
    monkeypatch.setattr(flows.train, "evaluate_splits", reached)
    opened = SimpleNamespace(recipe=RECIPE, home=home, run_id=run, facts={})
    with disable_run_logger(), pytest.raises(Reached):
        flows.train.run_steps(opened, False)  # type: ignore[arg-type]
    said = store.client().get_run(run).data.tags[tags.CHAMPION_NOTICED]
    assert said.startswith("version 2 was made champion outside Rewardflow, instead of version 1")
