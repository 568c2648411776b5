"""Policies with a registered version as base: its address is resolved to a folder, recorded, and kept on resume."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from models.base.errors import UserError
from models.policies.folder import given_folder, save_model_folder
from models.recipes.files import require_files
from models.recipes.load import digest, load_recipe, plain
from models.recipes.plan.report import planned
from models.recipes.schema import Recipe
from tasks.registered.base import current_base, described, note_of, resolve_base, until_done
from tasks.runner.contents import content_of
from tasks.tracking import aliases, lineage, registry, runs, tags
from tests.support.tiny_loops import TOKENIZER
from tests.support.tiny_models import tiny_policy

pytestmark = pytest.mark.rotating(of=6)

MODEL = "mine-policy"


def version(folder: Path, seed: int) -> int:
    """Register a new version of the policy with weights of its own, and return its number."""
    save_model_folder(tiny_policy(torch.float32, seed=seed), TOKENIZER, folder / f"policy-{seed}")
    run_id = runs.open_flow_run("e", "n")
    return registry.register(MODEL, registry.log_model(run_id, folder / f"policy-{seed}", "policy", "text-generation"))


@pytest.fixture
def home(tmp_path: Path, new_store: Callable[[Path], Path]) -> Path:
    """Return a state folder whose registry holds two versions. Version 1 is champion."""
    folder = new_store(tmp_path / "home")
    assert [version(tmp_path, seed) for seed in (1, 2)] == [1, 2]
    aliases.promote(MODEL, 1)
    return folder


def recipe(tmp_path: Path, base: str = "champion") -> Recipe:
    file = tmp_path / "mine.yaml"
    file.write_text(f"policy: {{base: '{base}'}}\nwarm_start: null\nreward_model: null\nrollouts: {{max_tokens: 8}}\n"
                    "evaluation: {max_tokens: 8}\n")  # fmt: skip
    return load_recipe(file)


def base_of(resolved: Recipe) -> bytes:
    """Return the weights that a resolved recipe starts with."""
    folder = given_folder(resolved.policy.base or "")
    assert folder is not None
    return (folder / "model.safetensors").read_bytes()


def weights(tmp_path: Path, seed: int) -> bytes:
    return (tmp_path / f"policy-{seed}" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("address", "seed"),
    [("champion", 1), (f"models:/{MODEL}@champion", 1), (f"models:/{MODEL}/1", 1), (f"models:/{MODEL}/2", 2)],
)
def test_an_address_becomes_the_folder_of_its_version_and_stands_on_the_run_by_number(
    home: Path, tmp_path: Path, address: str, seed: int
) -> None:
    asked = recipe(tmp_path, address)
    require_files(asked)  # the registry is queried only when the run begins
    resolved, base = resolve_base("train", asked, home)
    assert base is not None and (base.name, base.version.version) == (f"{MODEL}/{seed}", seed)
    assert base_of(resolved) == weights(tmp_path, seed)
    require_files(resolved)
    assert described(resolved, base).policy.base == f"models:/{MODEL}/{seed}"


def test_another_version_has_another_key_and_the_same_weights_elsewhere_the_same(home: Path, tmp_path: Path) -> None:
    keys = [
        str(content_of(resolve_base("train", recipe(tmp_path, f"models:/{MODEL}/{number}"), home)[0].policy))
        for number in (1, 2)
    ]
    elsewhere = recipe(tmp_path, str(tmp_path / "policy-1")).policy
    assert keys[0] != keys[1] and "sha256:" in keys[0] and str(content_of(elsewhere)) == keys[0]


def test_a_stopped_run_goes_on_from_the_version_that_it_began_with_and_the_next_takes_the_new_champion(
    home: Path, tmp_path: Path
) -> None:
    asked = recipe(tmp_path)
    resolved, _ = resolve_base("train", asked, home)
    with pytest.raises(KeyboardInterrupt), until_done("train", asked, home):
        raise KeyboardInterrupt
    aliases.promote(MODEL, 2)
    again, base = resolve_base("train", asked, home)
    assert base is not None and base.resumed and "as when the stopped run began" in str(base)
    assert base_of(again) == base_of(resolved) == weights(tmp_path, 1)
    assert resolve_base("train", asked.model_copy(update={"seed": 7}), home)[1].name == f"{MODEL}/2"  # type: ignore[union-attr]
    with until_done("evaluate", asked, home):
        pass  # the end of an evaluation does not end the stopped training
    assert resolve_base("train", asked, home)[1].name == f"{MODEL}/1"  # type: ignore[union-attr]
    with until_done("train", asked, home):
        pass
    newest, base = resolve_base("train", asked, home)
    assert base is not None and not base.resumed and base_of(newest) == weights(tmp_path, 2)


@pytest.mark.parametrize("damage", ["", "{}", '{"base": "models:/mine-policy/9"}', "no json"])
def test_a_note_that_is_broken_or_of_a_version_that_is_gone_is_passed_over(
    home: Path, tmp_path: Path, damage: str
) -> None:
    asked = recipe(tmp_path)
    note = note_of("train", asked, home)
    note.parent.mkdir()
    note.write_text(damage)
    _, base = resolve_base("train", asked, home)
    assert base is not None and base.name == f"{MODEL}/1" and not base.resumed


def test_a_base_of_another_kind_is_left_as_it_is(home: Path, tmp_path: Path) -> None:
    asked = recipe(tmp_path, str(tmp_path / "policy-1"))
    resolved, base = resolve_base("train", asked, home)
    assert base is None and resolved is asked and described(resolved, base) is asked
    assert not note_of("train", asked, home).exists() and digest(plain(asked)) == digest(plain(resolved))


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("models:/nobody@champion", r"policy\.base: model 'nobody' has no version with the alias champion"),
        (f"models:/{MODEL}/7", r"policy\.base: model 'mine-policy' has no version 7; its versions, newest first: 2, 1"),
        (f"models:/{MODEL}@champoin", "has no version with the alias champoin"),
        (f"models:/{MODEL}", r"is not an address of a model; write models:/NAME/VERSION or models:/NAME@ALIAS"),
        (f"models:/{MODEL}/two", "is not an address of a model"),
    ],
)
def test_an_address_of_nothing_is_one_line(home: Path, tmp_path: Path, address: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        resolve_base("train", recipe(tmp_path, address), home)


def test_the_first_policy_needs_another_base(tmp_path: Path, new_store: Callable[[Path], Path]) -> None:
    with pytest.raises(UserError, match="the first policy needs another base"):
        resolve_base("train", recipe(tmp_path), new_store(tmp_path / "home"))


def test_where_a_policy_came_from_stands_on_the_new_version_and_in_its_lineage(home: Path, tmp_path: Path) -> None:
    flow = runs.open_flow_run("e", "n", {tags.BASE_VERSION: f"{MODEL}/1"})
    facts = runs.inherited_tags(flow)
    assert facts == {tags.BASE_VERSION: f"{MODEL}/1"}
    registry.annotate(MODEL, 2, facts)
    assert f"trained on from: {MODEL}/1" in lineage.render(lineage.lineage(MODEL, 2))


def test_a_plan_is_of_the_version_that_the_base_means_and_writes_nothing_down(home: Path, tmp_path: Path) -> None:
    asked = recipe(tmp_path)
    resolved, base = current_base(asked)
    assert base is not None and base.version.version == 1 and not note_of("train", asked, home).exists()
    page, _ = planned(resolved, 16, None, str(base))
    parameters = sum(weight.numel() for weight in tiny_policy().parameters())
    assert f"{parameters:,} parameters (models:/{MODEL}/1 (champion))" in page
    with pytest.raises(UserError, match=r"policy\.base: champion is a registered version"):
        planned(asked, 16, None)
    with pytest.raises(UserError, match="alias gone"):
        current_base(recipe(tmp_path, f"models:/{MODEL}@gone"))
