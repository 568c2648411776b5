"""Use of a data version: models that learned from it are found by its hash, the beginning of the hash, or a commit."""

from pathlib import Path

import pytest

from models.base.errors import UserError
from tasks.tracking import aliases, data_use, records, registry, runs, tags

FIRST, SECOND, FILE = "1" * 32 + ".dir", "2" * 32 + ".dir", "3" * 32
COMMIT = "abcdef" + "0" * 34


def trained(policy_folder: Path, digest: str, base: str = "", context: str = "prepared") -> str:
    """Run a flow that reads data and registers a policy and a reward model. Return the policy's name and version."""
    facts = {tags.DATA_REVISION: COMMIT if digest == FIRST else "f" * 40} | ({tags.BASE_VERSION: base} if base else {})
    flow = runs.open_flow_run("e", "train e", facts)
    records.log_dataset(flow, "rows", digest, "data/prepared/rows", context)
    records.log_dataset(flow, "rows/problems_gate", FILE, "data/prepared/rows/problems_gate.parquet", "gate")
    judge = registry.log_model(runs.open_step_run(flow, "reward_model"), policy_folder, "r", "text-generation")
    registry.register("e-reward-model", judge)
    made = registry.log_model(runs.open_step_run(flow, "fine_tune"), policy_folder, "p", "text-generation")
    return f"e-policy/{registry.register('e-policy', made, {tags.RUN: flow})}"


def named(wanted: str) -> dict[str, tuple[bool, str]]:
    uses = data_use.uses_of(wanted)
    return {f"{use.version.name}/{use.version.version}": (use.learned, use.through) for use in uses}


@pytest.mark.rotating(of=6)
def test_models_of_the_data_and_all_that_was_trained_on_from_them(home: Path, policy_folder: Path) -> None:
    first = trained(policy_folder, FIRST)
    second = trained(policy_folder, SECOND)
    third = trained(policy_folder, SECOND, base=first)
    fourth = trained(policy_folder, SECOND, base=third)
    aliases.promote("e-policy", 1)
    wanted = {
        first: (True, ""), "e-reward-model/1": (True, ""), third: (True, first), fourth: (True, third),
    }  # fmt: skip
    for asked in (FIRST, FIRST[:32], FIRST[:6], COMMIT, COMMIT[:8].upper()):
        assert named(asked) == wanted
    assert set(named(SECOND)) == {second, third, fourth, *(f"e-reward-model/{number}" for number in (2, 3, 4))}
    said = data_use.render(FIRST[:8], data_use.uses_of(FIRST))
    assert "e-policy version 1 [anchor, champion]: rows (prepared)" in said
    assert f"e-policy version 4: through {third}" in said and "measured" not in said


@pytest.mark.rotating(of=6)
def test_what_was_only_measured_on_it_did_not_learn_from_it(home: Path, policy_folder: Path) -> None:
    name = trained(policy_folder, FIRST)
    assert named(FILE)[name] == (False, "")
    assert data_use.render(FILE, data_use.uses_of(FILE)).splitlines()[1] == "only measured on it:"


@pytest.mark.parametrize(
    ("wanted", "says"), [("12345", "is not a version"), ("x' OR", "is not"), ("9" * 32, "no run read")]
)
def test_what_is_no_data_of_any_run_is_one_line(home: Path, wanted: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        data_use.uses_of(wanted)
    runs.open_flow_run("e", "train e")
    with pytest.raises(UserError, match=says):
        data_use.uses_of(wanted)
