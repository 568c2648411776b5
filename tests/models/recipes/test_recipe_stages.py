"""Chains of recipes: the stages that run before a recipe, and errors before anything starts."""

from pathlib import Path

import pytest

from models.base.errors import UserError
from models.policies.build import PolicySettings, StageSettings
from models.recipes.comparison import contenders
from models.recipes.files import require_files
from models.recipes.json_schema import recipe_schema
from models.recipes.load import load_recipe, plain
from models.recipes.plan.report import planned
from models.recipes.quick_check import findings
from models.recipes.schema import Recipe
from models.recipes.smoke import SIZE, smoke_overrides
from models.recipes.stages import first_stage, stages_before

SMALL = "reward_model: null\nrewards: [{name: coin}]\nrollouts: {max_tokens: 16}\nevaluation: {max_tokens: 16}\n"
SIZES = "size: {hidden: 32, layers: 1, heads: 2, key_value_heads: 1, feed_forward: 32, positions: 64}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the recipes a, b and c, each of which begins with the policy of the one before it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(f"{SMALL}policy: {{{SIZES}}}\nwarm_start: {{steps: 3}}\n")
    (tmp_path / "b.yaml").write_text(f"{SMALL}policy: {{base: {{recipe: a.yaml, set: [seed=2]}}}}\nwarm_start: null\n")
    (tmp_path / "c.yaml").write_text(f"{SMALL}policy: {{base: {{recipe: b.yaml}}}}\nwarm_start: null\n")
    return tmp_path


def refused(*overrides: str, name: str = "c.yaml") -> str:
    """Return the error of a recipe with overrides."""
    with pytest.raises(UserError) as error:
        require_files(load_recipe(name, overrides))
    return str(error.value)


def test_the_stages_come_in_the_order_in_which_they_run_each_with_its_overrides(folder: Path) -> None:
    recipe = load_recipe("c.yaml")
    assert [(stage.name, stage.seed) for stage in stages_before(recipe)] == [("a", 2), ("b", 0)]
    assert first_stage(recipe).policy.size.hidden == 32 and stages_before(load_recipe("a.yaml")) == []
    assert plain(recipe)["policy"]["base"] == {"recipe": "b.yaml", "set": []}
    require_files(recipe)


def test_a_circle_is_refused_with_its_chain(folder: Path) -> None:
    line = refused("policy.base={recipe: c.yaml}", "warm_start=null", name="b.yaml")
    assert line.startswith("policy.base.recipe: the chain b -> c -> b has two stages of one name; it must not return")
    assert "\n" not in line


def test_stages_with_one_name_would_share_a_champion_and_are_refused(folder: Path) -> None:
    assert "the chain c -> c has two stages of one name" in refused("policy.base.set=[name=c]")


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("policy.base={recipe: d.yaml}", "policy.base.recipe: d.yaml: no such recipe"),
        ("policy.base.set=[seed]", "policy.base.recipe: override 'seed': write it as key.path=value"),
        ("policy.base.set=[no_key=1]", "policy.base.recipe: b.yaml: no_key: unknown key"),
        ("policy.base={recipe: ''}", "c.yaml: policy.base.recipe: String should have at least 1 character"),
        ("policy.base={recipe: b.yaml, seed: 1}", "c.yaml: policy.base.seed: unknown key"),
        ("policy.base=7", "c.yaml: policy.base: Input should be a valid string"),
        ("policy.size.hidden=64", "policy.size: c has the size of the first stage of its chain; leave it out"),
        ("policy.tokenizer.kind=words", "policy.tokenizer: c has the tokenizer of the first stage"),
        ("rollouts.max_tokens=64", "rollouts.max_tokens is 64, but the policy reads 64 tokens at most"),
        ("policy.chat=true", "policy.chat: a policy made from its size has no chat template"),
        ("policy.lora={targets: [gone]}", "policy.lora.targets"),
    ],
)
def test_a_wrong_stage_is_one_line(folder: Path, override: str, line: str) -> None:
    said = refused(override)
    assert said.startswith(line), said
    assert "\n" not in said


def test_a_later_stage_may_repeat_size_and_tokenizer_of_the_first(folder: Path) -> None:
    require_files(load_recipe("c.yaml", [f"policy.{SIZES.replace(': {', '={', 1)}"]))


def test_a_base_that_a_recipe_makes_has_no_name_before_the_run() -> None:
    with pytest.raises(UserError, match=r"policy\.base: the recipe a makes the model in a run of its own"):
        PolicySettings(base=StageSettings(recipe="a")).named_base  # noqa: B018 - it raises


@pytest.mark.rotating(of=6)
def test_the_schema_knows_both_forms_of_a_base() -> None:
    def errors(base: object) -> list[str]:
        return findings({"name": "c", "policy": {"base": base}}, recipe_schema())

    assert errors("folder") == errors(None) == errors({"recipe": "a", "set": ["seed=1"]}) == []
    assert errors({"recipe": "a", "sett": []}) == ["policy.base.sett: unknown key; did you mean set?"]


def test_a_plan_has_the_shapes_of_the_first_stage(folder: Path) -> None:
    page, fits = planned(load_recipe("c.yaml"), 8, None)
    assert "policy.size of the first stage, a" in page and fits
    alone, _ = planned(load_recipe("a.yaml"), 8, None)
    assert page.split(" parameters")[0] == alone.split(" parameters")[0]


def test_a_smoke_run_makes_every_stage_small(folder: Path) -> None:
    (folder / "c.yaml").write_text((folder / "c.yaml").read_text().replace("policy: {", f"policy: {{{SIZES}, "))
    small: Recipe = load_recipe("c.yaml", smoke_overrides(load_recipe("c.yaml")))
    require_files(small)
    first, second = stages_before(small)
    assert [first.name, second.name, small.name] == ["a-smoke", "b-smoke", "c-smoke"]
    assert first.policy.size.hidden == SIZE["hidden"] and first.warm_start is not None and first.warm_start.steps == 2
    assert second.schedule is not None and second.schedule.rounds == 2


def test_a_comparison_and_a_teacher_do_not_take_a_chain(folder: Path) -> None:
    with pytest.raises(UserError, match=r"policy\.base: b begins with the policy of a\.yaml; run that recipe first"):
        contenders(["b.yaml", "c.yaml"], ["policy.base={recipe: a.yaml}"], 2, "sampled_accuracy")
    line = refused("teacher={recipe: b.yaml}", "objective={name: distillation}", name="a.yaml")
    assert line.startswith("teacher.recipe: b begins with the policy of a.yaml; run it first")
