"""The catalogue of parts: its entries, settings, traits and pages."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from models.base.bounds import Number, Positive, Temperature
from models.base.errors import UserError
from models.method.registry import NESTED_SLOTS, SLOTS, parts
from models.recipes.catalogue import as_pages, as_text, entries, kind_of

ROOT = Path(__file__).resolve().parents[3]


def test_every_part_of_every_slot_is_listed_once_with_what_it_is_and_where_it_comes_from() -> None:
    listed = entries()
    assert [(entry.slot, entry.name) for entry in listed] == [
        (slot, name) for slot in SLOTS | NESTED_SLOTS for name in parts(slot)
    ]
    for entry in listed:
        assert entry.summary and entry.source and (ROOT / entry.file).is_file()
        assert all(setting.kind and setting.default and setting.meaning for setting in entry.settings), entry


@pytest.mark.rotating(of=6)
def test_a_part_is_told_with_settings_of_its_sections_their_own_defaults_and_traits() -> None:
    [gae] = entries("gae")
    settings = {setting.key: setting for setting in gae.settings}
    assert settings["gae_lambda"].kind == "number, 0 to 1" and settings["gae_lambda"].default == "0.95"
    assert settings["critic.optimiser.learning_rate"].default == "0.0003"  # the critic's default, not the optimiser's
    assert gae.traits == (("companion", "critic"), ("learns_from_flat_groups", "true"))
    [dpo] = entries("dpo")
    assert dpo.traits == (("level", "pair"), ("needs_reference", "true"))
    page = as_text([gae], whole=True)
    assert page.startswith("advantage: {name: gae}\n") and "  gamma: 1    (number, 0 to 1)\n" in page


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Positive, "whole number, at least 1"),
        (Temperature, "number, above 0 and at most 100"),
        (Number, "number"),
        (Annotated[float, Field(ge=0, le=1)] | None, "number, 0 to 1, or null"),
        (Literal["group", "none"], "group | none"),
        (tuple[Positive, ...], "list of: whole number, at least 1"),
        (bool, "true or false"),
        (str, "text"),
    ],
)
def test_a_type_is_told_in_words_with_its_bounds(hint: Any, words: str) -> None:
    assert kind_of(hint) == words


def test_a_name_that_nobody_knows_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no slot and no part is called 'gea'; did you mean gae\?"):
        entries("gea")


def test_the_pages_of_the_guide_are_made_from_the_parts() -> None:
    written = {file.name: file.read_text() for file in (ROOT / "docs/parts").iterdir()}
    assert written == as_pages(), "rewardflow parts --write docs/parts"
