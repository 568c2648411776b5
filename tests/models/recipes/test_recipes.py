"""Reading of recipes: defaults, unknown keys, impossible combinations, `extends`, and overrides."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from models.base.errors import UserError
from models.recipes import find
from models.recipes.find import find_recipe, method_files
from models.recipes.load import digest, load_recipe, plain
from models.recipes.schema import Recipe

RECIPES = Path(__file__).resolve().parents[3] / "recipes"

Writes = Callable[..., Path]


@pytest.fixture
def recipe(tmp_path: Path) -> Writes:
    """Return a function that writes a recipe and returns its path."""

    def write(text: str, name: str = "mine") -> Path:
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        return file

    return write


def refused(file: Path, pattern: str, overrides: Sequence[str] = ()) -> None:
    """Check that a recipe is refused with one line that names the file or the override."""
    with pytest.raises(UserError, match=pattern) as caught:
        load_recipe(file, overrides)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value) or "override" in str(caught.value)


@pytest.mark.parametrize("file", method_files(RECIPES), ids=lambda file: file.stem)
def test_every_recipe_of_the_house_loads_and_is_named_after_its_file(file: Path) -> None:
    assert load_recipe(file).name == file.stem


@pytest.mark.parametrize("file", method_files(RECIPES), ids=lambda file: file.stem)
def test_every_recipe_of_the_house_says_what_the_published_run_used_and_where_it_differs(file: Path) -> None:
    head = "".join(line for line in file.read_text().splitlines(True) if line.startswith("#"))
    assert "\n# Idea: " in head and max(map(len, head.splitlines())) <= 120, file.name
    said = re.search(r"^# Published \((not verified|.* read.*)\): .+\n(?:# .+\n)*?# Here: .+", head, re.MULTILINE)
    assert said, f"{file.name}: no 'Published (code read | not verified): ...' and 'Here: ...' in its head"


def test_an_empty_recipe_is_all_defaults(recipe: Writes) -> None:
    loaded = load_recipe(recipe(""))
    assert loaded.name == "mine" and loaded.objective.name == "grpo" and loaded.rewards[0].name == "exact_answer"


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("shedule: {rounds: 3}", r"shedule: unknown key; did you mean schedule\?"),
        ("schedule: {round: 3}", r"schedule\.round: unknown key; did you mean rounds\?"),
        (
            "schedule: {optimiser: {learning_rat: 3}}",
            r"schedule\.optimiser\.learning_rat: .* did you mean learning_rate\?",
        ),
        ("rewards: [{name: exact_answer, wieght: 2}]", r"rewards\.0\.wieght: unknown key; did you mean weight\?"),
        ("objective: {name: grpo, clip_lo: 0.1}", r"objective\.clip_lo: unknown key; did you mean clip_low\?"),
        ("policy: {lora: {rnk: 2}}", r"policy\.lora\.rnk: unknown key; did you mean rank\?"),
        ("select: {name: all, tolerance: 2}", r"select\.0\.tolerance: unknown key; known here: none"),
        ("policy: {zzz: 2}", r"policy\.zzz: unknown key; known here: .*tokenizer"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(recipe: Writes, text: str, pattern: str) -> None:
    refused(recipe(text), pattern)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (
            "rewards: [{name: exact_anser}]",
            r"rewards\.0\.name: 'exact_anser' is not known; did you mean exact_answer\?",
        ),
        ("select: {name: drop_flt}", r"select\.0\.name: 'drop_flt' is not known; did you mean drop_flat\?"),
        ("reference: {name: frozn}", r"reference\.name: 'frozn' is not known; did you mean frozen\?"),
        ("objective: {name: gripo}", r"objective\.name: 'gripo' is not known; did you mean grpo\?"),
        ("advantage: {name: zzz}", r"advantage\.name: 'zzz' is not known; there is .*group_relative"),
        ("engine: {name: vlm}", r"engine\.name: 'vlm' is not known; did you mean vllm\?"),
    ],
)
def test_an_unknown_part_is_named_with_the_nearest_known_one(recipe: Writes, text: str, pattern: str) -> None:
    refused(recipe(text), pattern)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("rollouts: {group_size: 1}", r"rollouts\.group_size is 1, but advantage group_relative compares .* 2 or more"),
        ("reference: {name: none}", r"objective\.kl is 0\.01, but the recipe has no reference"),
        ("warm_start: null", r"warm_start: null needs policy\.base"),
        ("objective: {name: dpo}", r"rollouts\.group_size is 8, but objective dpo learns from pairs: it needs 2"),
        (
            "objective: {name: dpo}\nrollouts: {group_size: 2}\nselect: {name: all}",
            r"objective dpo learns from a better and a worse completion: select needs drop_flat",
        ),
        ("reward_model: null\nrewards: [{name: reward_model}]", r"reward_model is used but the recipe fits none"),
        ("rewards: [{name: exact_answer}, {name: exact_answer}]", r"two components are labelled 'exact_answer'"),
        ("select: {name: drop_flat, by: judge}", r"select\.by: no reward is labelled 'judge'; there are exact_answer"),
        ("alarm: {by: nosuch}", r"alarm\.by: no reward is labelled 'nosuch'; there are exact_answer"),
        ("alarm: {proxy: nosuch, truth: exact_answer}", r"alarm\.proxy: no reward is labelled 'nosuch'"),
        ("alarm: {proxy: exact_answer}", r"alarm: proxy and truth are two rewards, or neither is named"),
        ("alarm: {proxy: exact_answer, truth: exact_answer}", r"alarm: proxy and truth are two rewards"),
        ("alarm: {by: spread}", r"alarm\.by: no reward is labelled 'spread'; there are exact_answer"),
        (
            "objective: {name: p3o}\nadvantage: {name: none}\nrollouts: {group_size: 1}",
            r"group_size is 1, but objective p3o compares the completions of a group: it needs 2 or more",
        ),
        (
            "rollouts: {name: mixture}\nreference: {name: none}\nobjective: {name: reinforce}",
            r"rollouts mixture needs a reference, but the recipe has none",
        ),
        (
            "advantage: {name: gae, kl_in_reward: 0.1}\nreference: {name: none}\nobjective: {name: reinforce}",
            r"advantage\.kl_in_reward is 0\.1, but the recipe has no reference",
        ),
        (
            "rewards: [{name: exact_answer}, {name: implicit_process}]\nreference: {name: none}\n"
            "objective: {name: reinforce}",
            r"rewards\.1 implicit_process needs a reference, but the recipe has none",
        ),
        (
            "rewards: [{name: implicit_process}, {name: exact_answer}]",
            r"rewards\.0\.by: no reward before it is labelled 'exact_answer'; there are none",
        ),
        (
            "objective: {name: soft_dpo, by: judge}\nrollouts: {group_size: 2}\nselect: {name: drop_flat}",
            r"objective\.by: no reward is labelled 'judge'; there are exact_answer",
        ),
        (
            "schedule: {async: 1}\nrollouts: {name: mixture}",
            r"async is 1, but rollouts mixture needs more",
        ),
        (
            "schedule: {async: 1}\nrollouts: {name: sample_beside_reference}",
            r"async is 1, but rollouts sample_beside_reference needs more than the engine",
        ),
        (
            "policy: {subnetwork: {share: 0.5}}\nschedule: {optimiser: {weight_decay: 0.1}}",
            r"policy\.subnetwork lets only some weights learn, but schedule\.optimiser\.weight_decay",
        ),
    ],
)
def test_an_impossible_combination_is_one_line(recipe: Writes, text: str, pattern: str) -> None:
    refused(recipe(text), pattern)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (
            "advantage: {name: greedy_baseline}",
            r"advantage greedy_baseline needs greedy, which rollouts sample does not give; set rollouts\.name to "
            r"sample_and_greedy$",
        ),
        (
            "advantage: {name: selective}",
            r"advantage selective needs choices, which rollouts sample .* set rollouts\.name to gated$",
        ),
        ("rollouts: {name: gated}", r"rollouts gated needs a gate; set advantage\.name to selective$"),
        (
            "rewards: {name: win_rate, against: opponents}",
            r"rewards\.0 win_rate needs opponents, .* rollouts\.name to sample_and_greedy or sample_beside_mixture$",
        ),
        (
            "advantage: {name: process_leave_one_out}",
            r"process_leave_one_out reads rewards token by token, but .* add .*implicit_process or .*turn_rewards$",
        ),
        (
            "rewards: [{name: exact_answer}, {name: implicit_process}, {name: implicit_process, label: two, beta: 1}]",
            r"rewards\.1 and rewards\.2 both bring a companion called process_reward, .* leave one of them out$",
        ),
        (
            "advantage: {name: reward}",
            r"advantage reward is not zero .* but select drop_flat leaves such prompts .* set select\.name to all$",
        ),
        ("advantage: {name: gae}", r"advantage gae is not zero .* set select\.name to all$"),
        ("advantage: {name: balanced, by: judge}", r"advantage\.by: no reward is labelled 'judge'; there are exact"),
        (
            "rollouts: {name: sample_beside_data, group_size: 2}\nobjective: {name: dpo}",
            r"rollouts sample_beside_data gives 3 completions of a prompt, but objective dpo learns from pairs",
        ),
        (
            "objective: {name: group_alignment}\nschedule: {async: 1}",
            r"schedule\.async is 1, but objective group_alignment is right only for completions of the policy as it",
        ),
        (
            "objective: {name: group_alignment}\nschedule: {epochs: 2}",
            r"schedule\.minibatches is 1 and schedule\.epochs is 2, but objective group_alignment is right only",
        ),
        (
            "objective: {name: nash_md}\nschedule: {minibatches: 2}",
            r"schedule\.minibatches is 2 and schedule\.epochs is 1, but objective nash_md is right only",
        ),
        (
            "objective: {name: group_alignment}\nrollouts: {name: replay}",
            r"rollouts replay gives completions of earlier rounds, but objective group_alignment is right only",
        ),
    ],
)
def test_parts_that_cannot_work_together_are_refused_before_the_first_round_with_the_part_that_can(
    recipe: Writes, text: str, pattern: str
) -> None:
    refused(recipe(text), pattern)


@pytest.mark.parametrize(
    "text",
    [
        "advantage: {name: greedy_baseline}\nrollouts: {name: sample_and_greedy}",
        "advantage: {name: selective}\nrollouts: {name: gated}",
        "rewards: {name: win_rate, against: opponents}\nrollouts: {name: sample_beside_mixture}",
        "rewards: {name: win_rate, against: opponents}\nrollouts: {name: sample_and_greedy}",
        "rewards: [{name: exact_answer}, {name: implicit_process}]\nadvantage: {name: process_leave_one_out}",
        "rewards: [{name: exact_answer}, {name: implicit_process}, {name: reference_value}]",
        "advantage: {name: reward}\nselect: {name: all}",
        "advantage: {name: none}\nobjective: {name: weighted_likelihood}",
        "objective: {name: group_alignment}",
        "objective: {name: grpo}\nschedule: {async: 1, epochs: 2}",
        "rollouts: {name: sample_beside_data, group_size: 2}\nobjective: {name: dpo}\nselect: {name: best_worst}",
    ],
)
def test_parts_that_bring_what_others_need_are_taken(recipe: Writes, text: str) -> None:
    load_recipe(recipe(text))


def test_combinations_of_the_loop_do_not_matter_where_there_is_no_loop(recipe: Writes) -> None:
    assert load_recipe(recipe("schedule: null\nrollouts: {group_size: 1}")).schedule is None


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("a: [1, 2", "not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("- 1\n- 2", "a recipe is a mapping of keys to values, this is a list"),
        ("just words", "a recipe is a mapping of keys to values, this is a str"),
        ("schedule: {rounds: many}", r"schedule\.rounds: .*integer"),
        ("rollouts: 7", r"rollouts: "),
        ("name: Has Spaces", r"name: "),
    ],
)
def test_what_is_no_recipe_is_one_line(recipe: Writes, text: str, pattern: str) -> None:
    refused(recipe(text), pattern)


def test_a_file_that_is_not_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00name")
    refused(tmp_path / "mine.yaml", "not UTF-8")


def test_what_extends_says_only_what_differs(recipe: Writes) -> None:
    recipe("seed: 5\nschedule: {rounds: 7, minibatches: 2}\nobjective: {name: grpo, kl: 0.5}", "base")
    loaded = load_recipe(recipe("extends: base\nschedule: {rounds: 9}"))
    assert loaded.schedule is not None
    assert (loaded.name, loaded.seed, loaded.schedule.rounds, loaded.schedule.minibatches) == ("mine", 5, 9, 2)
    assert loaded.objective.kl == 0.5


def test_extending_goes_through_several_files_and_the_last_word_wins(recipe: Writes) -> None:
    recipe("seed: 1\nschedule: {rounds: 1, epochs: 3}", "one")
    recipe("extends: one\nschedule: {rounds: 2}", "two")
    loaded = load_recipe(recipe("extends: two\nseed: 3"))
    assert loaded.schedule is not None
    assert (loaded.seed, loaded.schedule.rounds, loaded.schedule.epochs) == (3, 2, 3)


def test_a_part_of_another_name_replaces_the_part_whole_and_a_list_the_list(recipe: Writes) -> None:
    recipe("select: {name: drop_flat, tolerance: 0.5}\nrewards: [{name: exact_answer}, {name: reward_model}]", "base")
    loaded = load_recipe(recipe("extends: base\nselect: {name: all}\nrewards: [{name: exact_answer, weight: 3}]"))
    assert [part.name for part in loaded.select] == ["all"] and [part.weight for part in loaded.rewards] == [3.0]


def test_null_takes_a_section_of_the_base_away(recipe: Writes) -> None:
    recipe("reward_model: {least_accuracy: 0.9}", "base")
    assert load_recipe(recipe("extends: base\nreward_model: null")).reward_model is None


def test_a_recipe_that_extends_itself_or_nothing_is_one_line(recipe: Writes) -> None:
    recipe("extends: mine", "other")
    refused_in = recipe("extends: other")
    with pytest.raises(UserError, match="extends itself"):
        load_recipe(refused_in)
    with pytest.raises(UserError, match="nowhere: no such recipe"):
        load_recipe(recipe("extends: nowhere"))


def test_overrides_reach_into_sections_parts_and_lists(recipe: Writes) -> None:
    file = recipe("rewards: [{name: exact_answer}, {name: reward_model, weight: 0.2}]")
    loaded = load_recipe(
        file,
        [
            "schedule.rounds=3",
            "rewards.1.weight=0.7",
            "schedule.optimiser.learning_rate=1e-5",
            "data={name: arithmetic}",
        ],
    )
    assert loaded.schedule is not None
    assert loaded.schedule.rounds == 3 and loaded.rewards[1].weight == 0.7 and loaded.rewards[0].weight == 1.0
    assert loaded.schedule.optimiser.learning_rate == 1e-5
    assert load_recipe(file, ["rewards.0={name: exact_answer, label: right}"]).rewards[0].label == "right"
    assert load_recipe(file, ["reward_model=null", "rewards=[{name: exact_answer}]"]).reward_model is None


@pytest.mark.parametrize(
    ("override", "pattern"),
    [
        ("schedule.rounds", "write it as key.path=value"),
        ("=3", "write it as key.path=value"),
        ("rewards.5.weight=1", "'5' is not one of the 1 entries of the list"),
        ("rewards.first.weight=1", "'first' is not one of the 1 entries of the list"),
        ("rewards.0.tags.0.x=1", "rewards.0.tags"),
        ("gate.safety_patterns.0.x=1", "'x' is not a key: "),
        ("gate.safety_patterns.0.x.y=1", "'x' is not a key: "),
        ("schedule.rounds=[1", "is not valid YAML"),
        ("schedule.rouns=3", r"did you mean rounds\?"),
    ],
)
def test_an_override_that_reaches_nothing_is_one_line(recipe: Writes, override: str, pattern: str) -> None:
    file = recipe("rewards: [{name: exact_answer}]\ngate: {safety_patterns: [bad]}")
    refused(file, pattern, [override])


def test_naming_another_part_on_the_command_line_leaves_the_settings_of_the_old_one_behind(recipe: Writes) -> None:
    file = recipe("select: {name: drop_flat, tolerance: 0.5}\nobjective: {name: grpo, kl: 0.0}")
    assert load_recipe(file, ["select.name=all", "reference.name=none"]).select[0].name == "all"
    assert load_recipe(file, ["objective.name=grpo"]).objective.kl == 0.0
    back = load_recipe(file, ["select.tolerance=0.25", "select.name=drop_flat"])
    assert plain(back)["select"][0]["tolerance"] == 0.25
    listed = recipe("rewards: [{name: reward_model, squash: none}]", "listed")
    turned = load_recipe(listed, ["rewards.0.weight=2", "rewards.0.name=exact_answer"])
    assert (turned.rewards[0].name, turned.rewards[0].weight) == ("exact_answer", 2.0)


def test_a_name_is_looked_for_among_the_recipes_and_a_near_one_is_offered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(find, "FOLDER", tmp_path)
    (tmp_path / "arithmetic.yaml").write_text("")
    assert find_recipe("arithmetic") == find_recipe("arithmetic.yaml") == tmp_path / "arithmetic.yaml"
    with pytest.raises(UserError, match=r"arithmetik: no such recipe; did you mean .*arithmetic\.yaml\?"):
        find_recipe("arithmetik")


def test_written_out_and_read_again_a_recipe_is_the_same(recipe: Writes, tmp_path: Path) -> None:
    import yaml

    loaded = load_recipe(RECIPES / "arithmetic.yaml", ["seed=4"])
    again = load_recipe(recipe(yaml.safe_dump(plain(loaded)), "arithmetic"))
    assert again == loaded and digest(plain(again)) == digest(plain(loaded))
    assert digest(plain(load_recipe(RECIPES / "arithmetic.yaml", ["seed=5"]))) != digest(plain(loaded))


def staleness(loaded: Recipe) -> int:
    assert loaded.schedule is not None
    return loaded.schedule.staleness


def test_async_is_spelt_as_python_cannot(recipe: Writes, tmp_path: Path) -> None:
    import yaml

    file = recipe("schedule: {async: 1}")
    loaded = load_recipe(file)
    assert staleness(loaded) == 1 and staleness(load_recipe(file, ["schedule.async=0"])) == 0
    assert staleness(load_recipe(recipe("seed: 1", "plain"))) == 0
    assert plain(loaded)["schedule"]["async"] == 1
    assert load_recipe(recipe(yaml.safe_dump(plain(loaded)), "again")).schedule == loaded.schedule
    refused(file, r"schedule\.async: .*greater than or equal to 0", ["schedule.async=-1"])
    refused(file, r"schedule\.asinc: unknown key; did you mean async\?", ["schedule.asinc=1"])


def test_a_recipe_never_changes() -> None:
    loaded = load_recipe(RECIPES / "arithmetic.yaml")
    with pytest.raises(Exception, match="frozen"):
        loaded.seed = 3


@pytest.mark.parametrize("text", ["alarm: null", "alarm: {by: total}", "alarm: {by: exact_answer}"])
def test_the_alarm_watches_a_reward_that_is_there_or_all_of_them(recipe: Writes, text: str) -> None:
    load_recipe(recipe(text))


def test_the_alarm_may_watch_the_penalty_of_what_is_cut(recipe: Writes) -> None:
    load_recipe(recipe("truncated: {rule: soft_penalty}\nalarm: {by: overlong}"))
