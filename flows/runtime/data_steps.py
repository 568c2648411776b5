"""First steps of a flow: prepare the data and the held-out sets, and validate them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from flows.runtime.opening import FlowContext
from flows.runtime.steps import call_step, named_context
from models.base.errors import UserError
from models.recipes.held_out import held_out_recipes
from models.recipes.schema import Recipe
from tasks.data.answers import DataSections, require_held_out_answers
from tasks.data.versions import DataVersion
from tasks.runner.step import StepResult, content_key
from tasks.steps.prepare_data import prepare_data
from tasks.steps.validate_data import ValidationSections, validate_data


@dataclass(frozen=True)
class AdditionalData:
    """Data prepared in addition to the recipe's own: a held-out set, or the training data of a frozen model."""

    recipe: Recipe
    """The recipe with the settings for these data."""
    result: StepResult
    version: DataVersion


@dataclass(frozen=True)
class HeldOutSet(AdditionalData):
    """A held-out set, prepared and validated, on which policies are evaluated for the verdict."""

    validated: StepResult


@dataclass(frozen=True)
class Prepared:
    """The prepared data of a recipe, and its held-out sets."""

    result: StepResult
    version: DataVersion
    held_out: Mapping[str, AdditionalData]

    @property
    def unpinned(self) -> list[str]:
        """Reason why no commit pins the version, for the data and each held-out set; "" if one does."""
        return [self.version.unpinned, *(held.version.unpinned for held in self.held_out.values())]


def call_preparation(opened: FlowContext) -> Prepared:
    """Prepare the recipe's data and its held-out sets with DVC, which runs again only what changed.

    Raises:
        UserError: the answers to a held-out set cannot be checked, because none of its problems has an answer or tests.
    """
    result, version = _prepared(opened, opened.recipe, "data")
    held_out: dict[str, AdditionalData] = {}
    for name, recipe in held_out_recipes(opened.recipe).items():
        with _named(f"gate.held_out.{name}"):
            held_out[name] = AdditionalData(recipe, *_prepared(opened, recipe, f"data {name}"))
        require_held_out_answers(held_out[name].version.folder, name, opened.recipe.verifier)
    return Prepared(result, version, held_out)


def prepare_additional_data(opened: FlowContext, recipe: Recipe, name: str) -> AdditionalData:
    """Prepare the data of another recipe, by which this run makes a frozen model (teacher, contrast or judge).

    Args:
        name: role of that model, which is part of the step's name.
    """
    with _named(f"{name}.recipe"):
        return AdditionalData(recipe, *_prepared(opened, recipe, f"{name}: data"))


def call_validation(opened: FlowContext, data: Prepared, refresh: bool = False) -> StepResult:
    """Validate the prepared data of the recipe.

    The key is the same in every flow, so that a version is validated once for all flows. Rows that are also in a
    held-out set of other data are removed from the training rows.
    """
    # a set with the recipe's own rows, whose prompts are rewritten, has the gate split that is kept apart already
    others = [held for held in data.held_out.values() if held.recipe.data.name != opened.recipe.data.name]
    held_out = [held.version for held in others]
    inputs = (data.version, held_out) if held_out else (data.version,)
    return call_step(opened, validate_data, ValidationSections(opened.recipe), *inputs, refresh=refresh)


def call_held_out_validation(opened: FlowContext, data: Prepared, refresh: bool = False) -> dict[str, HeldOutSet]:
    """Validate the held-out sets; lengths are counted with the tokenizer of the policy that is trained on the data."""
    held_out: dict[str, HeldOutSet] = {}
    for name, held in data.held_out.items():
        sections = ValidationSections(held.recipe)
        none: list[DataVersion] = []
        inputs = (held.version, none, data.version)
        with _named(f"gate.held_out.{name}"):
            validated = call_step(opened, validate_data, sections, *inputs, refresh=refresh, name=f"validate {name}")
        held_out[name] = HeldOutSet(held.recipe, held.result, held.version, validated)
    return held_out


@contextmanager
def _named(key: str) -> Iterator[None]:
    """Prefix a UserError about additional data with their key in the recipe."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{key}: {error}") from error


def _prepared(opened: FlowContext, recipe: Recipe, name: str) -> tuple[StepResult, DataVersion]:
    key = content_key("data", recipe.data.model_dump(mode="json", exclude={"template"}))
    return prepare_data(named_context(opened, "data", key, DataSections(recipe), name), opened.root)
