"""The record of a version: each of its names finds it, and the record belongs to the run that made its weights."""

from pathlib import Path

import pytest

from models.base.errors import UserError
from tasks.tracking import aliases, recorded, registry, runs, tags


@pytest.fixture
def flows(home: Path, policy_folder: Path) -> tuple[str, str]:
    """Return a run that made weights, and a later run that reused and registered them."""
    made, took = (runs.open_flow_run("e", name, {tags.GIT_COMMIT: name}) for name in ("made", "took"))
    fitted = runs.open_step_run(made, "fine_tune")
    runs.close_run(fitted)
    reused = runs.open_step_run(took, "fine_tune", {tags.REUSED: fitted})
    runs.close_run(reused)
    for flow in (made, took):
        runs.log_params(flow, {"seed": 3})
    model = registry.log_model(fitted, policy_folder, "policy", "text-generation")
    registry.register("e-policy", model, {tags.RUN: took, tags.GIT_COMMIT: "took"})
    aliases.set_candidate("e-policy", 1)
    return made, took


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("wanted", ["1", "candidate", "e-policy/1", "e-policy@candidate", "models:/e-policy/1"])
def test_every_name_of_a_version_means_it(flows: tuple[str, str], wanted: str) -> None:
    said = recorded.recorded(wanted, lambda: "e-policy")
    assert said.version is not None and (said.version.name, said.version.version) == ("e-policy", 1)
    assert (said.trained_in, said.run) == flows
    assert (said.commit, said.dirty, said.params["seed"]) == ("took", False, "3")


def test_a_run_that_took_earlier_weights_names_the_run_that_made_them(flows: tuple[str, str]) -> None:
    made, took = flows
    said = recorded.recorded(took[:12], lambda: "e-policy")
    assert (said.version, said.run, said.trained_in) == (None, took, made)
    assert recorded.recorded(made, lambda: "e-policy").trained_in == made


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("champion", "no version with the alias champion"),
        ("7", "no version 7"),
        ("e-policy/9", "no version 9"),
        ("nothing", "no version, alias or run 'nothing'"),
    ],
)
def test_what_is_not_there_is_one_line(flows: tuple[str, str], wanted: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        recorded.recorded(wanted, lambda: "e-policy")


def test_a_text_that_no_run_has_is_empty(flows: tuple[str, str]) -> None:
    assert recorded.read_text(flows[0], "environment/packages.txt") == ""
    assert recorded.read_text("0" * 32, "environment/packages.txt") == ""
