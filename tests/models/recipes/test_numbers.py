"""Numbers of a recipe: infinite, undefined and too large ones are refused in every section and part."""

import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from models.base.bounds import LARGEST, require_finite
from models.base.errors import UserError
from models.recipes.load import load_recipe
from models.recipes.schema import recipe_type

pytestmark = pytest.mark.rotating(of=8)


def alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the types of a union, or the type itself if it is not a union; Annotated is unwrapped."""
    origin = get_origin(annotation)
    if origin is typing.Annotated:
        yield from alternatives(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from alternatives(member)
    else:
        yield annotation


def fields_of(section: Any) -> dict[str, Any]:
    """Return the fields of a section or part, name in the YAML -> type; {} if the type is neither."""
    if isinstance(section, type) and issubclass(section, BaseModel):
        return {name: info.annotation for name, info in section.model_fields.items()}
    if dataclasses.is_dataclass(section):
        alias = getattr(section, "__pydantic_config__", {}).get("alias_generator", str)
        hints = typing.get_type_hints(section)
        return {alias(item.name): hints[item.name] for item in dataclasses.fields(section)}
    return {}


Place = tuple[tuple[str | int, ...], dict[str, str], type]
"""Path of a number, the names of the parts along it (path of the part -> name), and int or float."""


def numbers(
    annotation: Any, path: tuple[str | int, ...] = (), named: tuple[tuple[str, str], ...] = ()
) -> Iterator[Place]:
    for member in alternatives(annotation):
        if member in (int, float):
            yield path, dict(named), member
        elif get_origin(member) in (list, tuple):
            inner = get_args(member)[0]
            yield from numbers(inner, (*path, 0), named)
        elif fields := fields_of(member):
            name = getattr(member, "name", None)
            here = (*named, (".".join(map(str, path)), name)) if isinstance(name, str) and "name" in fields else named
            for key, inner in fields.items():
                yield from numbers(inner, (*path, key), here)


@cache
def places() -> list[Place]:
    return list(numbers(recipe_type()))


def override(place: Place, value: str) -> str:
    """Return a whole top-level section as one override, with the number at its path and the parts along it named."""
    path, named, _ = place
    text = value
    for depth in range(len(path) - 1, 0, -1):
        if path[depth] == 0:
            text = f"[{text}, 1.0]" if path[depth - 1] == "betas" else f"[{text}]"
            continue
        name = named.get(".".join(map(str, path[:depth])))
        text = f"{{{f'name: {name}, ' if name else ''}{path[depth]}: {text}}}"
    return f"{path[0]}={text}"


NOT_FINITE = (".nan", ".inf", "-.inf", "1e400", "'inf'", "'-inf'", "'nan'")
TOO_LARGE = (f"{10**30}", f"{-(10**30)}", f"'{10**30}'", "9" * 5000)


def test_the_walk_sees_every_section_and_every_slot() -> None:
    seen = {".".join(map(str, path)) for path, _, _ in places()}
    assert {"seed", "rewards.0.weight", "rollouts.temperature", "advantage.critic.optimiser.learning_rate"} < seen
    assert {"policy.lora.rank", "evaluation.ks.0", "schedule.optimiser.betas.0", "reward_model.fit.margin"} < seen
    assert len(places()) > 250 and {name for _, named, _ in places() for name in named.values()} > {"grpo", "xpo"}


@pytest.mark.parametrize("value", [*NOT_FINITE, *TOO_LARGE], ids=lambda value: value[:8])
@pytest.mark.parametrize("section", sorted({str(place[0][0]) for place in places()}))
def test_no_number_of_a_section_or_part_is_infinite_or_endless(tmp_path: Path, section: str, value: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("")
    for place in (place for place in places() if place[0][0] == section):
        if value in NOT_FINITE and place[2] is not float:
            continue
        path = ".".join(map(str, place[0]))
        given = override(place, value)
        with pytest.raises(UserError) as refused:
            load_recipe(file, [given])
        line = str(refused.value)
        own_check = f"{place[0][0]}: " in line and str(place[0][-1]) in line  # a section's own check
        named = path in line or own_check or f".{place[0][-1]} is" in line or "5000 digits" in line
        assert "\n" not in line and named, (given[:200], line)


def test_the_largest_number_is_taken_and_one_more_is_not() -> None:
    require_finite({"a": [LARGEST, -LARGEST, 1.5, True, "text", None]})
    for value in (LARGEST + 1, float(LARGEST + 1), -LARGEST - 1, 10**400):
        with pytest.raises(ValueError, match=r"^a\.1: .* is larger than 4294967295"):
            require_finite({"a": [1, value]})


def test_json_of_an_infinite_weight_names_its_key(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(json.dumps({"rewards": [{"name": "exact_answer"}, {"name": "of_origin"}]}))
    with pytest.raises(UserError, match=r"rewards\.1\.weight: inf is not a finite number"):
        load_recipe(tmp_path / "mine.yaml", ["rewards.1.weight=.inf"])
