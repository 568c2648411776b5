"""The quick check refuses what the loader refuses, in the same words, without importing a part."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from models.base.errors import UserError
from models.recipes import json_schema, schema_file
from models.recipes.json_schema import recipe_schema
from models.recipes.load import load_recipe, plain
from models.recipes.quick_check import Undecided, findings, quick_findings
from models.recipes.schema import recipe_type
from models.recipes.schema_file import FILE, current_schema, stored_schema

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return recipe_schema()


def written(folder: Path, text: str) -> Path:
    file = folder / "wrong.yaml"
    file.write_text(text)
    return file


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    "text",
    [
        "seeed: 1",
        "on: {rounds: 3}",
        "seed: three",
        "seed: 1.5",
        "seed: -1",
        "approval: maybe",
        "name: " + "x" * 100,
        "reports: /tmp",
        "objective: {name: grpoo}",
        "objective: {kll: 0.1}",
        "schedule: {rouns: 3}",
        "schedule: {staleness: 1}",
        "warm_start: {tells: answer}",
        "truncated: {rule: wrongly}",
        "rewards: [exact_answer, {name: coin, weight: heavy}]",
        "rollouts: {name: episodes, environment: {name: nosuch}}",
        "rollouts: {name: episodes, environment: {name: tools, tool: [{name: calculator, digits: 3}]}}",
        "reward_model: {process: {labels: {samples: 0}}}",
        "evaluation: {ks: [1, 0]}",
        "gate: {held_out: {other: {format: nosuch}}}",
    ],
)
def test_an_error_has_the_words_of_the_loader(text: str, tmp_path: Path, schema: dict[str, Any]) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UserError) as refused:
        load_recipe(file)
    [line] = quick_findings(file, [], schema)
    assert line == str(refused.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("objective: [grpo]", "objective: Input should be a valid dictionary"),
        ("policy: {size: 3}", "policy.size: Input should be a valid dictionary"),
        ("schedule: {optimiser: {betas: [0.9]}}", "schedule.optimiser.betas: List should have at least 2 items"),
        (
            "schedule: {compile: never}",
            "schedule.compile: Input should be a valid boolean, unable to interpret input, or 'never'",
        ),
    ],
)
def test_an_error_for_which_the_loader_has_other_words_names_the_same_key(
    text: str, line: str, tmp_path: Path, schema: dict[str, Any]
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UserError, match=f"{file}: {line.partition(':')[0]}"):
        load_recipe(file)
    [refused] = quick_findings(file, [], schema)
    assert refused.startswith(f"{file}: {line}")


def test_all_errors_of_a_recipe_are_returned(tmp_path: Path, schema: dict[str, Any]) -> None:
    file = written(tmp_path, "extends: grpo\nseeed: 1\nschedule: {rouns: 3, minibatches: 0}\n")
    assert quick_findings(file, ["evaluation.top_p=2"], schema) == [
        f"{file}: schedule.rouns: unknown key; did you mean rounds?",
        f"{file}: schedule.minibatches: Input should be greater than or equal to 1",
        f"{file}: evaluation.top_p: Input should be less than or equal to 1",
        f"{file}: seeed: unknown key; did you mean seed?",
    ]


@pytest.mark.parametrize(
    "text", ['seed: "3"', "seed: true", "approval: 1", 'approval: "on"', 'evaluation: {top_p: "1"}']
)
def test_a_value_that_the_loader_converts_is_left_to_the_loader(
    text: str, tmp_path: Path, schema: dict[str, Any]
) -> None:
    file = written(tmp_path, text)
    load_recipe(file)
    with pytest.raises(Undecided):
        quick_findings(file, [], schema)


def test_no_recipe_of_the_project_has_findings(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    files = sorted((ROOT / "recipes").rglob("*.yaml"))
    assert len(files) > 200
    assert [line for file in files for line in quick_findings(file, [], schema)] == []


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in nested mappings and lists, those of mappings and lists included."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, entry in inside for place in places(entry, (*path, key))]


@pytest.mark.parametrize("name", ["grpo", "dpo", "countdown"])
def test_what_the_check_refuses_after_a_random_change_the_loader_refuses_too(name: str, schema: dict[str, Any]) -> None:
    recipe, random, refused = plain(load_recipe(name)), Random(name), 0
    values: list[Any] = [None, True, 0, 1, -1, 0.5, 1e9, "", "x", "3", "auto", [], {}, [1], {"x": 1}, [{}]]
    every = places(recipe)
    assert findings(recipe, schema) == []
    for _ in range(150):
        changed = json.loads(json.dumps(recipe))
        *above, last = random.choice(every)
        inside = changed
        for key in above:
            inside = inside[key]
        inside[last] = random.choice(values)
        try:
            lines = findings(changed, schema)
        except Undecided:
            continue
        if lines:
            refused += 1
            with pytest.raises(ValueError):
                recipe_type().model_validate(changed)
    assert refused > 40


def test_a_schema_keyword_that_the_check_does_not_know_is_left_to_the_loader(schema: dict[str, Any]) -> None:
    other = {**schema, "properties": {**schema["properties"], "seed": {"type": "integer", "multipleOf": 2}}}
    with pytest.raises(Undecided, match="multipleOf"):
        findings({"seed": 3}, other)


def test_the_stored_schema_is_used_until_a_source_changes(
    tmp_path: Path, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "part.py").write_text("A = 1\n")
    monkeypatch.setattr(schema_file, "MODELS", models)
    monkeypatch.setattr(json_schema, "recipe_schema", lambda: schema)  # a second build would give the same
    assert stored_schema(tmp_path) is None
    assert current_schema(tmp_path) == schema == stored_schema(tmp_path)
    (models / "part.py").write_text("A = 2\n")
    assert stored_schema(tmp_path) is None
    assert current_schema(tmp_path) == schema == stored_schema(tmp_path)
    for broken in ("", "[]", "{}", '{"sources": 3}'):
        (tmp_path / FILE).write_text(broken)
        assert stored_schema(tmp_path) is None


def test_a_folder_that_cannot_be_written_only_costs_time(
    tmp_path: Path, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_schema, "recipe_schema", lambda: schema)
    (tmp_path / "file").write_text("")
    assert current_schema(tmp_path / "file") == schema


def test_the_check_imports_neither_torch_nor_a_part(
    tmp_path: Path, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_schema, "recipe_schema", lambda: schema)
    current_schema(tmp_path)
    code = (
        "import sys; from pathlib import Path; from models.recipes.quick_check import quick_findings; "
        "from models.recipes.schema_file import stored_schema; "
        f"print(quick_findings('grpo', ['seed=-1'], stored_schema(Path({str(tmp_path)!r})))); "
        "print([name for name in sys.modules if name.startswith(('torch', 'numpy', 'models.parts', 'models.agents'))])"
    )
    lines = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).splitlines()
    assert "seed: Input should be greater than or equal to 0" in lines[0] and lines[1] == "[]"
