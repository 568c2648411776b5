"""The JSON Schema of recipes accepts every recipe's file as it is written, and refuses wrong ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from models.datasets.strict_yaml import parse_yaml
from models.method.registry import NESTED_SLOTS, SLOTS, parts
from models.recipes.json_schema import recipe_schema
from models.recipes.load import load_recipe, plain

ROOT = Path(__file__).resolve().parents[3]
RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return recipe_schema()


@pytest.fixture(scope="module")
def validator(schema: dict[str, Any]) -> Draft202012Validator:
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.thorough
def test_every_recipe_is_valid_as_its_file_is_written(validator: Draft202012Validator) -> None:
    refused = {
        file.stem: error.message[:200]
        for file in RECIPES
        for error in [next(validator.iter_errors(parse_yaml(file.read_text(encoding="utf-8"))), None)]
        if error is not None
    }
    assert len(RECIPES) > 200 and refused == {}


@pytest.mark.rotating(of=6)
def test_a_recipe_with_every_default_written_out_is_valid(validator: Draft202012Validator) -> None:
    for name in ("arithmetic", "grpo", "dpo"):
        assert [error.message for error in validator.iter_errors(plain(load_recipe(name)))] == []


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    "text",
    [
        "extends: grpo\nseeed: 1",
        "extends: grpo\nschedule: {rouns: 3}",
        "extends: grpo\nschedule: {minibatches: 0}",
        "extends: grpo\nobjective: grpoo",
        "extends: grpo\nobjective: {name: grpo, k: 1}",
        "extends: grpo\nrewards: [exact_answer, {name: coin, weight: heavy}]",
        "extends: grpo\nselect: {by: 3}",
        "extends: grpo\nrollouts: {name: episodes, environment: {name: nosuch}}",
        "extends: [grpo]",
        "name: Capital",
        "gate: {held_out: {Capital: {path: a.jsonl}}}",
        "reports: /tmp",
        "warm_start: 3",
        "rewards: [{temperature: 1}]",
    ],
)
def test_a_wrong_file_is_refused(text: str, validator: Draft202012Validator) -> None:
    assert not validator.is_valid(parse_yaml(text))


def test_settings_without_a_name_are_those_of_the_inherited_part_or_else_of_the_default_part(
    validator: Draft202012Validator,
) -> None:
    assert "beta" in vars(parts("objective")["dpo"]()) and "beta" not in vars(parts("objective")["grpo"]())
    assert validator.is_valid({"extends": "dpo", "objective": {"beta": 0.2}})
    assert not validator.is_valid({"objective": {"beta": 0.2}})
    assert validator.is_valid({"objective": {"kl": 0.2}})


def sections(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "recipe", schema
    yield from ((name, each) for name, each in schema["$defs"].items() if "properties" in each)


def test_every_key_has_a_description_and_every_setting_a_default(schema: dict[str, Any]) -> None:
    keys = [
        (f"{section}.{key}", about)
        for section, each in sections(schema)
        for key, about in each["properties"].items()
        if "const" not in about
    ]
    assert len(keys) > 1000
    assert [place for place, about in keys if not about.get("description")] == []
    without = ["recipe.extends", "recipe.name", "Mode.token", "Mode.answers", "StageSettings.recipe"]
    assert [place for place, about in keys if "default" not in about] == without
    assert dict(keys)["ScheduleSettings.async"]["default"] == 0


def test_every_default_is_valid_where_it_is(schema: dict[str, Any]) -> None:
    wrong = [
        (section, key, error.message)
        for section, each in sections(schema)
        for key, about in each["properties"].items()
        if "default" in about
        for error in Draft202012Validator({**about, "$defs": schema["$defs"]}).iter_errors(about["default"])
    ]
    assert wrong == []


def test_every_part_is_one_of_its_slot(schema: dict[str, Any]) -> None:
    for slot in SLOTS | NESTED_SLOTS:
        if slot != "strategy":  # of `rewardflow evaluate`, not of a recipe
            union = schema["$defs"][f"slot_{slot}"]
            assert union["discriminator"]["propertyName"] == "name"
            assert sorted(union["discriminator"]["mapping"]) == list(parts(slot))
            assert len(union["oneOf"]) == len(parts(slot)) + 1  # the last: settings without a name
