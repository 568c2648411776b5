"""Registered versions of stages: the base of the next recipe, its lineage, and the needs of `gc` and `reproduce`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from models.base.errors import UserError
from models.policies.folder import hash_folder, save_model_folder
from models.recipes.load import load_recipe, plain
from models.recipes.schema import Recipe
from tasks.registered.base import described, newest_start, note_of, resolve_base, version_of_stage
from tasks.registered.recorded_recipe import log_recipe_settings, read_recorded_recipe
from tasks.runner.step import StepResult
from tasks.tracking import aliases, lineage, needs, recorded, registry, runs, tags
from tests.support.tiny_loops import TOKENIZER
from tests.support.tiny_models import tiny_policy

pytestmark = pytest.mark.rotating(of=3)

FIRST, SECOND = "one-policy", "two-policy"


@dataclass(frozen=True)
class Stage:
    """A stage that ended before reinforcement learning, and the recipe after it."""

    recipe: Recipe
    file: Path
    home: Path
    run: str
    made: StepResult

    def version(self) -> registry.VersionInfo:
        return version_of_stage(FIRST, self.made, self.run)


@pytest.fixture
def stage(tmp_path: Path, new_store: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    home = new_store(tmp_path / "home")
    small = "reward_model: null\nrollouts: {max_tokens: 8}\nevaluation: {max_tokens: 8}\n"
    (tmp_path / "one.yaml").write_text(f"{small}schedule: null\n")
    file = tmp_path / "two.yaml"
    file.write_text(f"{small}warm_start: null\npolicy: {{base: {{recipe: one.yaml}}}}\n")
    run = runs.open_flow_run("one", "train one", {tags.RECIPE: "one", tags.SEED: "3", tags.UNPINNED: "no commit"})
    save_model_folder(tiny_policy(torch.float32, seed=1), TOKENIZER, tmp_path / "made" / "policy")
    step = runs.open_step_run(run, "warm_start")
    model = registry.log_model(step, tmp_path / "made" / "policy", "warm-start", "text-generation")
    digest = hash_folder(tmp_path / "made" / "policy")
    made = StepResult(step="warm_start", key="k", digest=digest, headline="", metrics={}, run_id=step, seconds=0.0,
                      links={"model_id": model}, folder=str(tmp_path / "made"))  # fmt: skip
    return Stage(load_recipe(file), file, home, run, made)


def trained_on_from(stage: registry.VersionInfo, folder: Path, name: str = SECOND) -> registry.VersionInfo:
    """Register another policy that was trained on from a version."""
    flow = runs.open_flow_run("two", "train two", {tags.BASE_VERSION: f"{stage.name}/{stage.version}"})
    save_model_folder(tiny_policy(torch.float32, seed=2), TOKENIZER, folder / name)
    model = registry.log_model(runs.open_step_run(flow, "fine_tune"), folder / name, "policy", "text-generation")
    facts = {**runs.inherited_tags(flow), tags.RUN: flow}
    return registry.version_info(name, registry.register(name, model, facts))


def test_a_stage_that_ends_early_is_registered_once_and_without_a_verdict(stage: Stage) -> None:
    version = stage.version()
    assert version == stage.version() and len(registry.versions(FIRST)) == 1
    facts = registry.facts_of(version)
    assert (facts[tags.WEIGHTS_SHA256], facts[tags.RUN], facts[tags.SEED]) == (stage.made.digest, stage.run, "3")
    assert tags.DECISION not in facts and facts[tags.UNPINNED] == "no commit"
    pinned = runs.open_flow_run("one", "train one", {tags.RECIPE: "one"})
    again = version_of_stage(FIRST, stage.made, pinned)
    assert again.version == version.version and not registry.facts_of(again)[tags.UNPINNED]


def test_the_next_recipe_begins_with_the_folder_of_the_stages_version(stage: Stage) -> None:
    resolved, base = resolve_base("train", stage.recipe, stage.home, stage.version)
    assert base is not None and base.of_stage and (base.name, str(base)) == (
        f"{FIRST}/1", f"models:/{FIRST}/1 (the recipe one.yaml)"
    )  # fmt: skip
    assert hash_folder(Path(resolved.policy.named_base or "")) == stage.made.digest
    assert plain(described(resolved, base))["policy"]["base"] == f"models:/{FIRST}/1"
    assert not note_of("train", stage.recipe, stage.home).exists()


def test_other_flows_begin_with_the_version_that_the_newest_policy_was_trained_on_from(
    stage: Stage, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"policy\.base\.recipe: two has no policy yet that was trained on from one;"):
        resolve_base("evaluate", stage.recipe, stage.home)
    trained_on_from(stage.version(), tmp_path)
    assert newest_start(stage.recipe).uri == f"models:/{FIRST}/1"
    resolved, _ = resolve_base("evaluate", stage.recipe, stage.home)
    assert hash_folder(Path(resolved.policy.named_base or "")) == stage.made.digest


def test_lineage_lists_the_stages_and_an_own_champion_is_none(stage: Stage, tmp_path: Path) -> None:
    second = trained_on_from(stage.version(), tmp_path)
    third = trained_on_from(second, tmp_path, "three-policy")
    assert [version.uri for version in lineage.stages_of(third)] == [f"models:/{FIRST}/1", f"models:/{SECOND}/1"]
    own = trained_on_from(second, tmp_path)
    assert lineage.stages_of(own) == [] and lineage.stages_of(stage.version()) == []
    said = lineage.render(lineage.lineage("three-policy", 1))
    titles = [f"stage {FIRST} version 1", f"stage {SECOND} version 1", "─ policy version 1"]
    assert sorted(titles, key=said.index) == titles


def test_a_champion_needs_the_runs_of_its_stages_and_a_refused_version_does_not(stage: Stage, tmp_path: Path) -> None:
    trained_on_from(stage.version(), tmp_path)
    assert not needs.needed_runs()[stage.made.run_id].lasting
    aliases.promote(SECOND, 1)
    need = needs.needed_runs()[stage.made.run_id]
    assert need.lasting
    assert need.why == f"{FIRST} version 1, from which {SECOND} version 1 (anchor, champion) was trained"


def test_the_recorded_recipe_begins_with_the_version_of_its_stage(stage: Stage, tmp_path: Path) -> None:
    version = trained_on_from(stage.version(), tmp_path)
    record = recorded.of_version(version)
    log_recipe_settings(record.run, plain(stage.recipe), tmp_path, stage.file, ["seed=4"])
    recipe, _ = read_recorded_recipe(record)
    assert (recipe.policy.base, recipe.seed) == (f"models:/{FIRST}/1", 4)
