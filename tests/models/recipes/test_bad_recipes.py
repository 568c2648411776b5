"""Wrong recipes and overrides: a table of the lines with which they are refused, each with file and key."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from models.base.errors import UserError
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe, plain

LAUGHS = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(9)
)
PAIRS = "objective: dpo\nrollouts: {group_size: 2}\nselect: {name: drop_flat}\n"
BAD = {
    # YAML that would be read as something else
    "a key twice": (
        "seed: 1\nschedule: {rounds: 2, rounds: 3}",
        "line 2: the key 'rounds' stands twice, first in line 2",
    ),
    "a section twice": ("seed: 1\nseed: 2", "line 2: the key 'seed' stands twice, first in line 1"),
    "a key that is a number": ("1: 2", "line 1: a key must be text, put '1' in quotes"),
    "a key that is true": ("true: 2", "line 1: a key must be text, put 'true' in quotes"),
    "a key that is a list": ("[a]: 2", "line 1: a key must be text, put it in quotes"),
    "the key on": ("on: {rounds: 3}", "on: unknown key; known here: "),
    "a sexagesimal": ("seed: 1:30", "seed: .*integer"),
    "a date": ("seed: 2026-11-01", "seed: .*integer"),
    "5,000 levels": ("seed: " + "[" * 5000, "line 1: nested more than 40 levels deep"),
    "5,000 digits": ("seed: " + "9" * 5000, "line 1: a whole number of 5000 digits"),
    "an alias of itself": ("seed: &a [*a]", "line 1: an alias stands inside of what it stands for"),
    "aliases of aliases": (LAUGHS, "aliases make more than 100000 values"),
    "a tag that does not fit": ("seed: !!bool maybe", "a value does not fit its tag"),
    "two documents": ("seed: 1\n---\nseed: 2", "expected a single document"),
    # keys and names
    "a long key": ("x" * 1000 + ": 1", r"x+\.\.\.x+: unknown key"),
    "a long name": ("name: " + "x" * 3000, "name: String should have at most 64 characters"),
    "a long part": ("objective: " + "x" * 3000, r"objective\.name: 'x+\.\.\.x+' is not known"),
    "a part that is a number": ("objective: 3", "objective: "),
    "a part of two names": ("objective: {name: [grpo, dpo]}", "objective"),
    "parts of a policy without a tower": ("policy: {train: [vision]}", r"policy\.train: the policy reads no images"),
    "no part": ("policy: {train: []}", r"policy\.train: name at least one part"),
    # numbers
    "an infinite weight": ("rewards: [{name: exact_answer, weight: .inf}]", r"rewards\.0\.weight: inf is not a finite"),
    "1e400": (
        "schedule: {optimiser: {learning_rate: 1e400}}",
        r"schedule\.optimiser\.learning_rate: inf is not a finite",
    ),
    "temperature 0": ("rollouts: {temperature: 0}", r"rollouts\.temperature: Input should be greater than 0"),
    "a reward that reads episodes of one sequence": (
        "rollouts: {name: program, command: [agent]}\nrewards: [exact_answer, trajectory_model]",
        r"rewards\.1 trajectory_model reads an episode as one sequence, but rollouts program may make several",
    ),
    "temperature 0 of replay": (
        "rollouts: {name: replay, temperature: 0}",
        r"rollouts\.temperature: Input should be gr",
    ),
    "temperature 0 of a mixture": (
        "rollouts: {name: mixture, temperature: 0}",
        r"rollouts\.temperature: Input should be",
    ),
    "a seed below 0": ("seed: -1", "seed: Input should be greater than or equal to 0"),
    "no layers": ("policy: {size: {layers: 0}}", r"policy\.size\.layers: Input should be greater than or equal to 1"),
    "a width of 10**9": ("policy: {size: {hidden: 1000000000}}", r"policy\.size\.hidden: Input should be less than"),
    "heads that do not divide": ("policy: {size: {heads: 3}}", "policy.size: hidden 128 must be a multiple of heads 3"),
    "heads of an odd width": ("policy: {size: {hidden: 6, heads: 2}}", "the width of a head, which must be even"),
    "rank 0": ("policy: {lora: {rank: 0}}", r"policy\.lora\.rank: Input should be greater than or equal to 1"),
    "dropout 1": ("policy: {lora: {dropout: 1}}", r"policy\.lora\.dropout: Input should be less than 1"),
    "a beta of 1": ("schedule: {optimiser: {betas: [0.9, 1]}}", r"schedule\.optimiser\.betas\.1: Input should be less"),
    "all of the memory": ("engine: {memory_share: 1.5}", r"engine\.memory_share: Input should be less than 1"),
    # lengths and counts
    "k above samples": (
        "evaluation: {samples: 16, ks: [1, 32]}",
        r"evaluation\.ks holds 32, but evaluation\.samples is 16: .* set evaluation\.ks to \[1, 16\]",
    ),
    "k of 0": ("evaluation: {ks: [0]}", r"evaluation\.ks\.0: Input should be greater than or equal to 1"),
    "completions longer than the model": (
        "policy: {size: {positions: 64}}",
        r"rollouts\.max_tokens is 64, but the policy reads 64 tokens at most, .* raise policy\.size\.positions",
    ),
    "an evaluation longer than the model": (
        "evaluation: {max_tokens: 2000}",
        r"evaluation\.max_tokens is 2000, but the policy reads 1024 tokens at most",
    ),
    "a budget below one completion": (
        "schedule: {token_budget: 64}",
        r"schedule\.token_budget is 64, .* rollouts\.max_tokens alone is 64; raise the budget",
    ),
    # data
    "a bucket": (
        "data: {name: own, path: 's3://bucket/rows.jsonl', format: problems}",
        r"data\.path\S*: s3://bucket/rows\.jsonl is not a path on this machine, and not hf://OWNER/NAME; download the",
    ),
    "an address": ("data: {name: own, path: 'https://a.org/b.csv', format: problems}", "is not a path on this machine"),
    # extends
    "extends nothing": ("extends: zzz_zzz", "mine.yaml: extends: zzz_zzz: no such recipe"),
    "extends out of the folder": ("extends: ../../secrets", r"extends: \.\./\.\./secrets leads out of the folder"),
    "extends an absolute path": ("extends: /etc/hostname", "extends: /etc/hostname leads out of the folder"),
    "extends a list": ("extends: [a, b]", "extends: the name of one recipe, not a list"),
    "extends a long name": ("extends: " + "x" * 3000, r"extends: "),
}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def refused(file: Path, overrides: tuple[str, ...] = ()) -> str:
    """Return the one line with which a recipe is refused."""
    with pytest.raises(UserError) as caught:
        load_recipe(file, overrides)
    line = str(caught.value)
    assert "\n" not in line and len(line) <= 600
    return line


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD)
def test_a_wrong_recipe_is_one_line_with_its_file_and_key(mine: Path, text: str, says: str) -> None:
    mine.write_text(text)
    with pytest.raises(UserError, match=says):
        load_recipe(mine)
    assert str(mine) in refused(mine)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("schedule: {minibatches: 0}", "schedule.minibatches"),
        ("schedule: {epochs: 0}", "schedule.epochs"),
        ("schedule: {checkpoint_every: 0}", "schedule.checkpoint_every"),
        ("schedule: {optimiser: {clip_norm: 0}}", "schedule.optimiser.clip_norm"),
        ("schedule: {optimiser: {learning_rate: -1}}", "schedule.optimiser.learning_rate"),
        ("warm_start: {steps: 0}", "warm_start.steps"),
        ("reward_model: {fit: {report_every: 0}}", "reward_model.fit.report_every"),
        ("rollouts: {prompts: 0}", "rollouts.prompts"),
        ("rollouts: {top_p: 1.5}", "rollouts.top_p"),
        ("evaluation: {samples: 0}", "evaluation.samples"),
        ("evaluation: {temperature: 0}", "evaluation.temperature"),
        ("evaluation: {top_p: 1.5}", "evaluation.top_p"),
    ],
)
def test_a_number_that_would_train_or_measure_nothing_is_refused_by_its_path(mine: Path, text: str, path: str) -> None:
    mine.write_text(text)
    line = refused(mine)
    assert str(mine) in line and re.search(rf"{re.escape(path)}: Input should be (greater|less) than", line)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("rewards.².weight=2", "'²' is not one of the 1 entries"),
        ("rewards.٠.weight=2", "'٠' is not one of the 1 entries"),
        (f"rewards.{'9' * 5000}.weight=2", "is not one of the 1 entries"),
        ("rewards.-1.weight=2", "'-1' is not one of the 1 entries"),
        ("rewards.0.weight=.inf", "rewards.0.weight: inf is not a finite number"),
        ("seed=[[[", "is not valid YAML"),
        ("seed=" + "[" * 5000, "nested more than 40 levels"),
        ("schedule={rounds: 1, rounds: 2}", "the key 'rounds' stands twice"),
        (".".join("a" * 5000) + "=1", "no key lies 4999 levels deep"),
        ("x" * 5000, "write it as key.path=value"),
        ("extends=grpo", "extends: unknown key"),
        ("rollouts..prompts=3", "rollouts"),
    ],
)
def test_a_wrong_override_is_one_line(mine: Path, override: str, says: str) -> None:
    mine.write_text("rewards: [{name: exact_answer}]")
    assert says in refused(mine, (override,))


def test_bytes_that_are_no_utf8_name_their_line(mine: Path) -> None:
    mine.write_bytes(b"seed: 1\nname: caf\xe9\n")
    assert f"{mine}, line 2: not UTF-8 text (byte 0xe9" in refused(mine)


def test_a_missing_recipe_below_names_the_file_that_extends_it(tmp_path: Path) -> None:
    (tmp_path / "top.yaml").write_text("extends: middle")
    (tmp_path / "middle.yaml").write_text("extends: zzz_zzz")
    assert refused(tmp_path / "top.yaml") == f"{tmp_path / 'middle.yaml'}: extends: zzz_zzz: no such recipe"


def test_a_chain_of_recipes_without_end_is_one_line(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"r{number}.yaml").write_text(f"extends: r{number + 1}")
    assert "extends more than 20 recipes" in refused(tmp_path / "r0.yaml")


def test_a_name_that_no_file_system_takes_is_no_recipe() -> None:
    with pytest.raises(UserError, match=r"^x+\.\.\.x+: no such recipe \(File name too long\)$"):
        find_recipe("x" * 5000)


# ---------------------------------------- accepted forms


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (PAIRS, PAIRS.replace("dpo", "{name: dpo}")),
        ("select: all\nreference: frozen", "select: {name: all}\nreference: {name: frozen}"),
        ("rewards: [exact_answer, length_penalty]", "rewards: [{name: exact_answer}, {name: length_penalty}]"),
        ("rewards: exact_answer", "rewards: [{name: exact_answer}]"),
    ],
)
def test_a_part_that_is_only_named_is_that_part(mine: Path, short: str, long: str) -> None:
    actual = []
    for text in (short, long):
        mine.write_text(text)
        actual.append(plain(load_recipe(mine)))
    assert actual[0] == actual[1]


def test_an_override_names_a_part_and_then_sets_it(mine: Path) -> None:
    mine.write_text(PAIRS)
    loaded: Any = load_recipe(
        mine, ["objective=ipo", "objective.beta=0.3", "rewards=[exact_answer]", "rewards.0.weight=2"]
    )
    assert (loaded.objective.name, loaded.objective.beta, loaded.rewards[0].weight) == ("ipo", 0.3, 2.0)


def test_numbers_are_written_as_python_writes_them(mine: Path) -> None:
    mine.write_text("seed: 010\nschedule: {optimiser: {learning_rate: 1e-5, warmup_steps: 1_000}}")
    loaded = load_recipe(mine)
    assert loaded.schedule is not None and loaded.seed == 10
    assert (loaded.schedule.optimiser.learning_rate, loaded.schedule.optimiser.warmup_steps) == (1e-5, 1000)


# ---------------------------------------- random values and characters


def described() -> dict[str, Any]:
    """Return every key of a recipe with a valid value."""
    return plain(load_recipe(Path(__file__).parents[3] / "recipes" / "arithmetic.yaml"))


NASTY: tuple[Any, ...] = (
    None, True, 0, -1, 3, 10**12, 10**30, 0.5, float("inf"), float("nan"), "", "x", "grpo", "1e400", "\ud800", "a\0b",

    "x" * 2000, [], [1], [[]], {}, {"name": "grpo"}, {"name": None},
    {"name": ["a"]}, {"x": {"y": 1}}, ["exact_answer"], [None],
)  # fmt: skip


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of every value in a tree."""
    if isinstance(value, dict):
        return [path, *(place for key, inner in value.items() for place in places(inner, (*path, key)))]
    if isinstance(value, list):
        return [path, *(entry for place, inner in enumerate(value) for entry in places(inner, (*path, place)))]
    return [path]


@pytest.mark.rotating(of=6)
def test_whatever_stands_at_a_key_is_a_recipe_or_one_line(mine: Path) -> None:
    random = Random(0)
    mine.write_text("rewards: [{name: exact_answer}]\nselect: [{name: drop_flat}]\nevaluation: {ks: [1, 4, 16]}")
    outcomes = set()
    for path in places(described())[1:]:
        for value in random.sample(NASTY, 3):
            outcomes.add(outcome(mine, (f"{'.'.join(map(str, path))}={json.dumps(value)}",)))
    assert outcomes == {True, False}


@pytest.mark.rotating(of=6)
def test_whatever_characters_a_recipe_holds_are_a_recipe_or_one_line(mine: Path) -> None:
    random = Random(1)
    sound = (Path(__file__).parents[3] / "recipes" / "gsm8k.yaml").read_text()
    for _ in range(200):
        spoilt = list(sound)
        for _ in range(random.randrange(1, 6)):
            place = random.randrange(len(spoilt))
            spoilt[place : place + random.randrange(4)] = random.choice("{}[]:,&*!|>'\"%@`#-?\t\n \0é\u2028\ufeff~<0.e")
        mine.write_text("".join(spoilt))
        outcome(mine, ())


def outcome(file: Path, overrides: tuple[str, ...]) -> bool:
    """Return whether the recipe is read. Otherwise, check that it is refused with one line."""
    try:
        load_recipe(file, overrides)
    except UserError as error:
        line = str(error)
        assert "\n" not in line and 0 < len(line) <= 600 and line.isprintable(), line
        return False
    return True
