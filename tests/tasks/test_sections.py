"""The settings of a step: it receives only those in its key. Each of them changes the key, and no other does."""

import copy
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from prefect import Task
from pydantic import BaseModel

from models.base.sections import Sections, of
from models.recipes.load import load_recipe
from models.recipes.schema import Recipe
from tasks.runner.step import StepContext, content_key
from tasks.steps import (
    evaluate,
    fine_tune,
    fit_process_model,
    fit_reward_model,
    judge_champion,
    label_pairs,
    label_steps,
    prepare_data,
    promote,
    upload_reports,
)
from tasks.steps import validate_data as validation
from tasks.steps import warm_start as start

SLOTS = ("rollouts", "rewards", "select", "advantage", "objective", "reference")
LENGTHS = ("data.name", "data.template", "validation.max_tokens", "rollouts.max_tokens", "evaluation.max_tokens")
SCORES = ("reward_model.fit.token_budget",)
USED = ("policy.chat", "policy.system", "policy.trust_remote_code")
MADE = ("policy.base", "policy.size.positions", "policy.precision")
"""Settings of a policy that set its room for tokens, and its precision, which matters where a reward model scores."""
DRAWN = (
    *LENGTHS,
    *SCORES,
    *USED,
    *MADE,
    "engine",
    "evaluation.temperature",
    "evaluation.top_p",
    "evaluation.seed",
    "evaluation.wrap",
    "evaluation.images",
    "gate.hallucination",
)

READ: dict[type[Sections], tuple[str, ...]] = {
    validation.ValidationSections: (
        "validation", "data.template", "policy.base", "policy.tokenizer", "policy.size.vision", "policy.chat",
        "policy.system", "policy.trust_remote_code",
    ),
    start.WarmStartSections: (
        "data.name", "data.template", "seed", "warm_start", *USED, "policy.base", "policy.tokenizer", "policy.size",
        "policy.precision",
    ),
    fit_reward_model.RewardModelSections: (
        "name", "data.name", "data.template", "seed", "reward_model", "policy.chat", "policy.system",
        "policy.precision", "policy.trust_remote_code",
    ),
    label_steps.LabelSections: (*LENGTHS, "seed", *USED, *MADE[:2], "engine", "reward_model.process", "judge"),
    label_pairs.JurySections: (*LENGTHS, "seed", *USED, *MADE[:2], "engine", "reward_model.pairs", "judge"),
    fine_tune.FineTuneSections: (
        *LENGTHS, *SCORES, *SLOTS, "seed", "policy", "engine", "truncated", "schedule", "alarm", "teacher", "judge",
    ),
    evaluate.ShownSections: (
        *DRAWN, "evaluation.problems", "evaluation.samples", "evaluation.ks", "gate.safety_patterns", "gate.copied",
        "drift.rows",
    ),
    evaluate.GateSections: (*DRAWN, "gate.problems", "gate.samples", "gate.fluency_margin", "gate.copied"),
}  # fmt: skip
"""The settings that each reusable step depends on, written down independently of the step's own file."""

TASKS = [
    prepare_data.prepare_data, validation.validate_data, start.warm_start, fit_reward_model.reward_model,
    label_steps.label_steps, label_pairs.label_pairs, fit_process_model.process_model, fine_tune.fine_tune,
    evaluate.evaluate_policy, judge_champion.judge_champion, promote.promote,
]  # fmt: skip


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe("arithmetic", ["policy.lora={rank: 2}"])


def settings(section: Any) -> dict[Any, Any]:
    """Return the settings that a section consists of; none for a single setting."""
    if isinstance(section, BaseModel):
        return dict(section)
    if is_dataclass(section):
        return {item.name: getattr(section, item.name) for item in fields(section)}
    return dict(enumerate(section)) if isinstance(section, list) else {}


def leaves(section: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each single setting of a recipe."""
    inside = settings(section)
    for name, value in inside.items():
        yield from leaves(value, (*path, name))
    if not inside:
        yield path


def changed(section: Any, path: tuple[Any, ...]) -> Any:
    """Return the recipe with another value at `path`, without any validation."""
    if not path:
        match section:
            case bool():
                return not section
            case int() | float():
                return section + 1
            case tuple() | list():
                return (*section, 77)
            case dict():
                return {**section, "other": "name"}
        return f"{section}-other"
    inner = changed(settings(section)[path[0]], path[1:])
    if isinstance(section, list):
        return [inner if at == path[0] else value for at, value in enumerate(section)]
    other = copy.copy(section)
    vars(other)[path[0]] = inner
    return other


@pytest.mark.parametrize("sections", READ, ids=lambda sections: sections.__name__)
def test_each_setting_that_a_step_reads_changes_its_key_and_no_other_does(sections: type[Sections], recipe: Recipe):
    key = content_key("a step", sections(recipe))
    assert key == content_key("a step", sections(load_recipe("arithmetic", ["policy.lora={rank: 2}"])))
    paths = {".".join(map(str, path)): path for path in leaves(recipe)}
    assert len(paths) > 100
    felt = {name for name, path in paths.items() if content_key("a step", sections(changed(recipe, path))) != key}
    declared = {name for name in paths if any(f"{name}.".startswith(f"{prefix}.") for prefix in READ[sections])}
    assert felt == declared


@pytest.mark.parametrize("sections", READ, ids=lambda sections: sections.__name__)
def test_a_section_that_the_key_does_not_hold_is_not_there(sections: type[Sections], recipe: Recipe):
    read = {path.split(".")[0] for path in READ[sections]}
    handed = StepContext("a step", "key", sections(recipe), Path("home"), "run")
    others = set(type(recipe).model_fields) - read
    assert len(others) >= 5
    for name in others:
        with pytest.raises(AttributeError, match=name):
            getattr(handed.recipe, name)


def test_a_step_that_reads_what_it_has_not_declared_fails_at_once(recipe: Recipe):
    class Declared(Sections):
        seed: int
        longest: int = of("validation.max_tokens")

    def body(context: StepContext[Declared]) -> int:
        return context.recipe.longest + context.recipe.gate.problems  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="gate"):
        body(StepContext("a step", "key", Declared(recipe), Path("home"), "run"))


def test_a_setting_of_a_section_that_is_null_is_none(recipe: Recipe):
    class Declared(Sections):
        budget: int | None = of("reward_model.fit.token_budget")

    assert recipe.reward_model is not None
    assert Declared(recipe).budget == recipe.reward_model.fit.token_budget
    assert Declared(load_recipe("arithmetic", ["reward_model=null", "rewards=exact_answer"])).budget is None


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_no_step_is_handed_a_recipe(task: Task[..., Any]):
    hints = typing.get_type_hints(task.fn)
    (sections,) = typing.get_args(hints.pop("context"))
    assert all(issubclass(kind, Sections) for kind in typing.get_args(sections) or (sections,))
    assert not any(isinstance(hint, type) and issubclass(hint, Recipe) for hint in hints.values())


def test_every_step_is_looked_at():
    there = {value.name for module in (
        prepare_data, validation, start, fit_reward_model, label_pairs, label_steps, fit_process_model, fine_tune,
        evaluate, judge_champion, promote, upload_reports,
    ) for value in vars(module).values() if isinstance(value, Task)}  # fmt: skip
    assert there == {task.name for task in TASKS} | {"upload_reports"}  # it reads no setting of a recipe


def kinds_of(hint: Any) -> set[Any]:
    """Return the types that a type consists of; for a mapping, those of its values."""
    if typing.get_origin(hint) is Mapping:
        return kinds_of(typing.get_args(hint)[1])
    parts = typing.get_args(hint)
    return {kind for part in parts for kind in kinds_of(part)} if parts else {hint}


@pytest.mark.parametrize("task", [
    validation.validate_data, start.warm_start, fit_reward_model.reward_model, fine_tune.fine_tune,
    evaluate.evaluate_policy,
], ids=lambda task: task.name)  # fmt: skip
def test_what_a_step_is_given_beside_its_sections_is_known_by_the_hash_of_its_content(task: Task[..., Any]):
    hints = typing.get_type_hints(task.fn)
    given = [hint for name, hint in hints.items() if name not in ("context", "return")]
    for kind in {kind for hint in given for kind in kinds_of(hint)} - {type(None)}:
        assert "digest" in {**getattr(kind, "model_fields", {}), **typing.get_type_hints(kind)}


BARE = ["reward_model=null", "rewards=exact_answer"]
BASED = ["policy.base=Qwen/Qwen3-0.6B@" + 40 * "a", "warm_start=null", *BARE]


@pytest.mark.parametrize(
    ("before", "change", "kept"),
    [
        (BASED, "policy.precision=float32", {"validate", "warm_start", "evaluate", "gate"}),
        (BASED, "policy.lora={rank: 4}", {"validate", "warm_start", "evaluate", "gate"}),
        (BASED, "policy.subnetwork={share: 0.5}", {"validate", "warm_start", "evaluate", "gate"}),
        (BASED, "policy.size.positions=4096", {"validate", "warm_start", "evaluate", "gate"}),
        (BASED, "policy.tokenizer.vocabulary=999", {"validate", "warm_start", "evaluate", "gate"}),
        (BASED, "policy.chat=true", {"warm_start"}),
        (BARE, "policy.precision=float32", {"validate", "evaluate", "gate"}),
        (BARE, "policy.lora={rank: 4}", {"validate", "warm_start", "evaluate", "gate"}),
        (BARE, "policy.tokenizer.vocabulary=999", {"evaluate", "gate"}),
        ([], "policy.precision=float32", {"validate"}),
    ],
)
def test_a_setting_that_a_step_does_not_read_repeats_nothing_of_it(before: list[str], change: str, kept: set[str]):
    steps = {
        "validate": validation.ValidationSections, "warm_start": start.WarmStartSections,
        "evaluate": evaluate.ShownSections, "gate": evaluate.GateSections, "fine_tune": fine_tune.FineTuneSections,
    }  # fmt: skip
    former, latter = (load_recipe("arithmetic", overrides) for overrides in (before, [*before, change]))
    assert {
        name for name, made in steps.items() if content_key("a", made(former)) == content_key("a", made(latter))
    } == kept


def test_validation_reads_the_tokenizer_of_a_base_and_none_of_its_weights(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"1")

    def keys() -> list[str]:
        based = load_recipe("arithmetic", [f"policy.base={tmp_path}", *BASED[1:]])
        return [content_key("a", made(based)) for made in (validation.ValidationSections, start.WarmStartSections)]

    first = keys()
    (tmp_path / "model.safetensors").write_bytes(b"22")
    second = keys()
    assert first[0] == second[0] and first[1] != second[1]
    (tmp_path / "tokenizer.json").write_text("{ }")
    assert keys()[0] != second[0] and keys()[1] != second[1]
