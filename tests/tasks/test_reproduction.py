"""Reproduction of a version: an obstacle is named in one line, and reproduced weights must match bit for bit."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from small_repository import ROOT, commit, git, mine, set_params

from models.base.errors import UserError
from models.recipes.load import load_recipe, plain
from tasks.data.add_data import add
from tasks.data.versions import DataVersion
from tasks.host.machine import machine, packages
from tasks.registered import reproducible, reproduction
from tasks.registered.recorded_recipe import log_recipe_settings, read_recorded_recipe
from tasks.registered.reproduction import Surroundings
from tasks.steps.prepare_data import log_data
from tasks.tracking import runs, store, tags
from tasks.tracking.recorded import VersionRecord, of_run

pytestmark = pytest.mark.rotating(of=6)


@pytest.fixture
def said(root: Path, new_store: Callable[[Path], Path], tmp_path: Path) -> VersionRecord:
    """Return the record of a run in a clean repository."""
    new_store(tmp_path / "home")
    return on_record(git(root, "rev-parse", "HEAD"))


def on_record(commit_of_code: str, *data: DataVersion) -> VersionRecord:
    """Record a run that has ended, and return its record."""
    run = runs.open_flow_run("small", "train small", {tags.GIT_COMMIT: commit_of_code})
    for version in data:
        log_data(run, version)
    runs.close_run(run)
    return replace(of_run(run), label="small-policy version 1")


def refused(check: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(UserError) as why:
        check(*arguments)
    line = str(why.value)
    assert line.startswith("small-policy version 1") and "\n" not in line
    return line


def test_what_is_checked_out_must_be_what_made_it_and_whole(said: VersionRecord, root: Path) -> None:
    reproducible.require_reproducible(said, root)
    for status in ("RUNNING", "FAILED", "KILLED"):
        assert status in refused(reproducible.require_reproducible, replace(said, status=status), root)
    for name, says in (
        (f"{said.commit}-dirty", "did not hold the code"),
        ("no commit", "no commit"),
        ("", "no commit"),
    ):
        assert says in refused(reproducible.require_reproducible, replace(said, facts={tags.GIT_COMMIT: name}), root)

    (root / "models/new.py").write_text("")
    assert "models/new.py" in refused(reproducible.require_reproducible, said, root)
    later = commit(root)
    line = refused(reproducible.require_reproducible, said, root)
    assert line.endswith(f"`git checkout {said.commit}`") and later[:8] in line
    git(root, "checkout", "--quiet", said.commit)
    reproducible.require_reproducible(said, root)
    elsewhere = replace(said, facts={tags.GIT_COMMIT: "0" * 40})
    assert f"`git fetch && git checkout {'0' * 40}`" in refused(reproducible.require_reproducible, elsewhere, root)


@pytest.mark.thorough
def test_data_that_the_commit_does_not_pin_or_nobody_has_are_refused(
    root: Path, made: DataVersion, new_store: Callable[[Path], Path], tmp_path: Path
) -> None:
    new_store(tmp_path / "home")
    recipe, said = load_recipe("arithmetic"), on_record(commit(root), made)
    assert reproducible.require_data(said, recipe, root) == made.digest
    clone = root.parent / "clone"
    git(root, "clone", "--quiet", root, clone)
    assert reproducible.require_data(said, recipe, clone) == made.digest, "code makes them where no remote has them"
    other = [replace(link, digest="f" * 32 + ".dir") if link.context == "prepared" else link for link in said.data]
    assert f"missing: commit {said.commit[:8]} pins version {made.digest[:8]}" in refused(
        reproducible.require_data, replace(said, data=tuple(other)), recipe, root
    )
    assert "not on record" in refused(reproducible.require_data, replace(said, data=()), recipe, root)
    set_params(root, demonstrations={"train": 40, "validation": 10})
    assert "prepares to version" in refused(reproducible.require_data, said, recipe, root)


@pytest.mark.thorough
def test_a_users_data_are_pulled_and_refused_where_no_remote_has_them(
    root: Path, raw: Path, new_store: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_store(tmp_path / "home")
    monkeypatch.chdir(root)
    added, settings = add(mine([raw]), root)
    said = on_record(git(root, "rev-parse", "HEAD"), added)
    recipe = load_recipe(str(ROOT / "recipes/arithmetic.yaml")).model_copy(update={"data": settings})
    clone = root.parent / "clone"
    git(root, "clone", "--quiet", root, clone)
    monkeypatch.chdir(clone)
    assert "data version" in refused(reproducible.require_data, said, recipe, clone)
    shutil.copytree(root / ".rewardflow/dvc-remote", clone / ".rewardflow/dvc-remote")
    assert reproducible.require_data(said, recipe, clone) == added.digest
    assert git(clone, "status", "--porcelain") == ""


def test_a_training_on_completions_as_they_come_is_refused(said: VersionRecord) -> None:
    for steps in (0, 1):
        reproducible.require_exact(said, load_recipe("arithmetic", [f"schedule.async={steps}"]))
    for steps in (2, 4):
        recipe = load_recipe("arithmetic", [f"schedule.async={steps}"])
        assert f"schedule.async is {steps}" in refused(reproducible.require_exact, said, recipe)


def test_a_recipe_that_the_commit_does_not_hold_is_refused(said: VersionRecord, root: Path) -> None:
    outside = root.parent / "other.yaml"
    outside.write_text("name: other\n")
    line = refused(reproducible.require_recipe, said, load_recipe("arithmetic"), outside, root)
    assert "other.yaml lies outside of the repository" in line and "what runs is the code of" in line


def test_a_recipe_is_read_as_it_was_asked_for(said: VersionRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path.cwd()
    recipe = load_recipe("arithmetic", ["seed=7", "schedule.rounds=3"])
    log_recipe_settings(
        said.run, plain(recipe), root, root / "recipes/arithmetic.yaml", ["seed=7", "schedule.rounds=3"]
    )
    again, file = read_recorded_recipe(said)
    assert plain(again) == plain(recipe) and file == Path("recipes/arithmetic.yaml")

    log_recipe_settings(said.run, {}, root, root / "recipes/arithmetic.yaml", ["policy.base=champion"])
    trained_on = replace(said, facts={**said.facts, tags.BASE_VERSION: "a-policy/4"})
    assert read_recorded_recipe(trained_on)[0].policy.base == "models:/a-policy/4"
    assert "not on record" in refused(read_recorded_recipe, replace(said, run="0" * 32))


def test_the_precision_of_a_step_that_was_reused_is_that_of_the_run_that_made_it(said: VersionRecord) -> None:
    then = runs.open_flow_run("small", "train small")
    made = runs.open_step_run(then, "warm_start", {tags.PRECISION: "bfloat16", tags.PRECISION_OF: "one"})
    runs.open_step_run(said.run, "warm_start", {tags.REUSED: made})
    runs.open_step_run(said.run, "fine_tune", {tags.PRECISION: "float32", tags.PRECISION_OF: "two"})
    runs.open_step_run(said.run, "reward_model", {tags.PRECISION: "float32"})
    assert reproducible.recorded_precisions(said) == {"one": "bfloat16", "two": "float32"}


def model_folder(folder: Path, shift: float = 0.0, **files: str) -> Path:
    folder.mkdir()
    save_file({"a": torch.zeros(3) + shift, "b": torch.ones(2)}, folder / "model.safetensors")
    for name, text in {"config": "{}", **files}.items():
        (folder / f"{name}.json").write_text(text)
    return folder


def held(
    said: VersionRecord, original: Path, made: Path, metrics: dict[str, float], **around: Any
) -> reproduction.Reproduction:
    same = Surroundings({"p": "1"}, {"threads": "1"}, {"p": "1"}, {"threads": "1"})
    recipe = load_recipe("arithmetic")
    known = replace(said, params=runs.param_texts(plain(recipe)), metrics={"eval/x": 0.5, "seconds": 4.0})
    return reproduction.reproduction(known, recipe, "d", original, made, metrics, replace(same, **around), 1e-6)


def test_what_differs_is_named_and_nothing_else(said: VersionRecord, tmp_path: Path) -> None:
    original, same = model_folder(tmp_path / "a"), model_folder(tmp_path / "b")
    other = model_folder(tmp_path / "c", shift=0.25, tokenizer="{}")
    good = held(said, original, same, {"eval/x": 0.5 + 5e-7, "seconds": 9.0})
    assert good.identical and good.recorded_sha256 == good.made_sha256 and good.compared == 1 and not good.notes
    assert not (good.recipe or good.packages or good.machine)

    bad = held(said, original, other, {"eval/x": 0.5 + 2e-6}, packages_now={"p": "2"}, machine_now={"threads": "2"})
    assert [(gap.name, gap.greatest) for gap in bad.gaps] == [("a", 0.25)] and bad.files == ("tokenizer.json",)
    assert [gap.name for gap in bad.metrics] == ["eval/x"] and not bad.identical
    assert [entry.name for entry in (*bad.packages, *bad.machine)] == ["p", "threads"]
    for metrics in ({}, {"eval/x": float("nan")}):
        assert not held(said, original, same, metrics).identical
    unknown = held(said, original, same, {"eval/x": 0.5}, packages_then={}, machine_then={})
    assert unknown.identical and len(unknown.notes) == 2


def test_what_is_of_here_differs_from_itself_in_nothing(tmp_path: Path) -> None:
    here = Surroundings(packages(), machine(tmp_path), packages(), machine(tmp_path))
    assert not (here.packages or here.machine or here.deciding)


def test_a_store_apart_is_another_one_and_the_first_comes_back(
    said: VersionRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.current()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", before.uri)
    with pytest.raises(UserError, match="on purpose"), store.separate_store(tmp_path / "apart"):
        assert store.current().home == tmp_path / "apart" and store.configured_address() == ""
        run = runs.open_flow_run("small", "train small")
        raise UserError("on purpose")
    assert store.current() == before and json.dumps(run)
    assert [entry.info.run_id for entry in store.client().search_runs(["1"])] == [said.run]
