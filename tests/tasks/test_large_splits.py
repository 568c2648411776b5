"""Splits too large for memory: prompts that are read when drawn equal those held in memory, and take little memory.

The tests lower the bounds, so that their small splits count as too large.
"""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.base.errors import UserError
from models.datasets import row_table
from models.datasets.row_table import open_rows
from models.datasets.schema import arrow_schema, file_name, read_rows, write_rows
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings, fit_supervised, negative_log_likelihood
from models.method.curriculum import CurriculumSettings, choose, drawn_at_most
from models.method.problem import KnownAnswer, Problem
from models.method.problem_rows import ProblemRows, Problems, ids_of, known_answers, places_of, prompt_lengths, taken
from models.method.tally import Tally
from models.parts.reference.frozen import Frozen
from models.parts.rollouts.replay import Replay
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from models.reward_models import fit as reward_fit
from models.reward_models.fit import PairRows, RewardModelSettings, fit_reward_model, score_pairs
from models.reward_models.model import reward_model_from_policy
from models.reward_models.read_pairs import read_pairs
from models.text import token_rows
from models.text.token_cache import CachedCodec
from models.text.token_rows import TokenRows
from models.training.known_log_probs import with_reference
from models.training.read_demonstrations import demonstrations
from models.training.read_problems import PromptSections, read_problems, read_prompts
from models.training.row_lengths import require_room
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, SLOTS, new_learner, run, same_weights, save_start
from tests.support.tiny_models import contents, tiny_policy
from tests.support.tiny_resources import CODEC

ROOT = Path(__file__).resolve().parents[2]
ORDERS = ["shuffled", "signal", "phases", "adaptive"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write problems, demonstrations and preferences, and return the folder.

    Rows with the same prompt are not adjacent. Some rows are too long, and some prompts have no problem.
    """
    folder = tmp_path / "clean"
    folder.mkdir()
    prompts = [f"{number % 9} + {number % 7} =" + " ;" * (number % 5) for number in range(60)]
    texts = ["1 ; " * (number % 6) + f"{number % 13} #### {number % 5}" for number in range(180)]
    problems = [
        {"id": f"p{number}", "prompt": text, "answer": str(number), "level": number % 3, "tests": "", "entry_point": ""}
        for number, text in enumerate(prompts)
    ]
    asked = [number * 7 % 60 for number in range(140)]
    rows = [
        {"prompt_id": f"p{p}" if p % 4 else f"q{p}", "prompt": prompts[p], "level": p % 3}
        | {"flaw": ("none", "slip")[p % 2]}
        for p in asked
    ]
    stated = [{"completion": text, "answer": "" if n % 3 else str(n % 2)} for n, text in enumerate(texts)]
    shown = [row | {"id": f"d{n}"} | stated[n] for n, row in enumerate(rows)]
    preferred = [row | {"id": f"f{n}", "chosen": texts[n], "rejected": texts[n + 40]} for n, row in enumerate(rows)]
    for kind, made in (("problems", problems), ("demonstrations", shown), ("preferences", preferred)):
        write_rows(folder / file_name(kind, "train"), made, arrow_schema(kind))  # type: ignore[arg-type]
    return folder


@pytest.fixture
def codec(tmp_path: Path) -> CachedCodec:
    return CachedCodec(CODEC.tokenizer, folder=tmp_path / "tokens")


def too_large(patch: pytest.MonkeyPatch) -> None:
    """Lower the bounds, so that no split is held in memory from here on."""
    patch.setattr(row_table, "HELD_BYTES", 0)
    patch.setattr(row_table, "BATCH_ROWS", 16)
    patch.setattr(token_rows, "HELD", 0)


def recipe(name: str, *overrides: str) -> PromptSections:
    given = ["rollouts.max_tokens=12", "policy.size.positions=20", *overrides]
    return PromptSections(load_recipe(name, given))


READ = {
    "problems": recipe("grpo"),
    "preferences": recipe("dpo"),
    "demonstrations": recipe("dpo", "rollouts.reads=demonstrations", "objective={name: weighted_likelihood}"),
}


def plainly(data: Path, kind: str) -> list[Problem]:
    """Return the prompts of a recipe of READ. This simple reader holds all rows in memory."""
    truths = {row["id"]: row["answer"] for row in read_rows(data, "problems", "train")}
    made: dict[str, Problem] = {}
    for row in read_rows(data, kind, "train"):  # type: ignore[arg-type]
        tokens = tuple(CODEC.prompts([row["prompt"]])[0])
        answers = {"problems": (), "preferences": ("chosen", "rejected"), "demonstrations": ("completion",)}[kind]
        ids = {name: tuple(CODEC.completions([row[name]])[0]) for name in answers}
        if len(tokens) > 8 or any(len(answer) > 12 for answer in ids.values()):
            continue
        known = tuple(
            KnownAnswer(
                "demonstration" if name == "completion" else name,  # type: ignore[arg-type]
                answer,
                row[name],
                "" if name == "chosen" or row["flaw"] == "none" else row["flaw"],
            )
            for name, answer in ids.items()
        )
        key = row["prompt_id" if kind == "demonstrations" else "id"]
        if key in made:
            made[key] = replace(made[key], known=made[key].known + known)
        else:
            answer = row.get("answer", "") or truths.get(row.get("prompt_id", ""), "")
            made[key] = Problem(key, row["prompt"], answer, row["level"], tokens, known)
    return list(made.values())


@pytest.mark.parametrize("kind", READ)
def test_prompts_are_the_same_whether_a_split_is_held_or_read_when_they_are_drawn(
    data: Path, codec: CachedCodec, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = plainly(data, kind)
    held = read_prompts(data, codec, READ[kind])
    assert isinstance(held, list) and contents(held) == contents(expected)
    too_large(monkeypatch)
    lying = read_prompts(data, codec, READ[kind])
    assert isinstance(lying, Problems)
    assert 20 < len(lying) == len(expected) and contents(list(lying)) == contents(expected)
    order = np.random.default_rng(0).permutation(len(lying))
    assert contents([lying[int(place)] for place in order]) == contents([expected[place] for place in order])
    some, of_list = taken(lying, order[:9]), taken(expected, order[:9])
    assert contents(list(some)) == contents(of_list) and contents(list(some[2:7:2])) == contents(of_list[2:7:2])
    for part, same in ((lying, expected), (some, of_list)):
        assert list(ids_of(part)) == list(ids_of(same))
        assert prompt_lengths(part).tolist() == prompt_lengths(same).tolist()
        assert known_answers(part).tolist() == known_answers(same).tolist()
        names = {problem.id for problem in expected[3:30:4]} | {"nobody"}
        assert places_of(part, names).tolist() == places_of(same, names).tolist()


@pytest.mark.parametrize("kind", READ)
def test_another_process_that_is_given_the_prompts_reads_the_same(
    data: Path, codec: CachedCodec, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = read_prompts(data, codec, READ[kind])
    for bound in (1 << 26, 0):  # rows in memory, then rows in a file
        too_large(monkeypatch)
        monkeypatch.setattr(row_table, "HELD_BYTES", bound)
        lying = read_prompts(data, codec, READ[kind])
        sent = pickle.dumps(lying)
        assert contents(list(pickle.loads(sent))) == contents(held)  # noqa: S301 - this test made the bytes
    assert len(sent) < 40 * 140 * 3  # numbers of rows and of tokens, but no text


def test_held_out_problems_are_the_same_evenly_spaced_ones(
    data: Path, codec: CachedCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = plainly(data, "problems")
    spaced = [expected[number * len(expected) // 7] for number in range(7)]
    assert contents(read_problems(data, codec, "train", READ["problems"], 7)) == contents(spaced)
    too_large(monkeypatch)
    assert contents(read_problems(data, codec, "train", READ["problems"], 7)) == contents(spaced)
    assert contents(read_problems(data, codec, "train", READ["problems"])) == contents(expected)


def test_easy_problems_alone_are_spaced_over_the_easy_ones(
    data: Path, codec: CachedCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = plainly(data, "problems")
    level = sorted(problem.level for problem in expected)[len(expected) // 2]
    easy = [problem for problem in expected if problem.level <= level]
    spaced = [easy[number * len(easy) // 4] for number in range(4)]
    for _ in range(2):
        assert contents(read_problems(data, codec, "train", READ["problems"], 4, level)) == contents(spaced)
        assert contents(read_problems(data, codec, "train", READ["problems"], hardest=level)) == contents(easy)
        with pytest.raises(UserError, match=r"has no train problems of level -1 or below"):
            read_problems(data, codec, "train", READ["problems"], hardest=-1)
        too_large(monkeypatch)


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("order", ORDERS)
def test_every_curriculum_draws_the_same_prompts(
    data: Path, codec: CachedCodec, kind: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = read_prompts(data, codec, READ[kind])
    too_large(monkeypatch)
    lying = read_prompts(data, codec, READ[kind])
    settings = CurriculumSettings(order=order)  # type: ignore[arg-type]
    tally = Tally(seen={problem.id: (2.0, 3.0 + number) for number, problem in enumerate(held[::3])})
    tally.order = [problem.id for problem in held[:8]] * 3
    for number in range(9):
        first, other = (choose(all_of, settings, tally, 8, number, 9, 5) for all_of in (held, lying))
        assert contents(first) == contents(other)
    for rounds in (2, 30):
        first, other = (list(drawn_at_most(all_of, settings, 8, rounds, 5, False)) for all_of in (held, lying))
        assert contents(first) == contents(other)


def lying_problems(folder: Path) -> Problems:
    """Write the problems of the tiny loop to a file, and return them as problems that are read when drawn."""
    rows = [
        {"id": problem.id, "prompt": problem.prompt, "answer": problem.answer, "level": 1}
        | {"tests": "", "entry_point": ""}
        for problem in PROBLEMS
    ]
    write_rows(folder / file_name("problems", "train"), rows, arrow_schema("problems"))
    table = open_rows(folder, "problems", "train")
    return Problems(ProblemRows(table, "id", CODEC.rows_of_prompts(table.column("prompt")), {}), np.arange(len(table)))


@pytest.mark.rotating(of=8)
@pytest.mark.parametrize("curriculum", [*({"order": order} for order in ORDERS), {"high": 0.9, "tried": 5}], ids=str)
def test_a_training_on_prompts_that_are_read_when_drawn_ends_with_the_same_weights_also_after_a_kill(
    tmp_path: Path, curriculum: dict[str, object]
) -> None:
    start = save_start(tmp_path / "policy")
    schedule = replace(SCHEDULE, curriculum=CurriculumSettings(by="sevens", **curriculum))  # type: ignore[arg-type]
    slots = replace(SLOTS, rollouts=Replay(prompts=4, group_size=4, max_tokens=5, replayed=2))
    (tmp_path / "clean").mkdir()
    problems = lying_problems(tmp_path / "clean")
    whole, _ = run(start, tmp_path / "held", schedule=schedule, slots=slots)
    run(start, tmp_path / "lying", schedule=schedule, slots=slots, problems=problems, killed_in=5)
    again, diary = run(start, tmp_path / "lying", schedule=schedule, slots=slots, problems=problems)
    assert diary.resumed == [4] and same_weights(whole, again)


@pytest.mark.parametrize(
    "settings",
    [
        SupervisedSettings(steps=4, batch=16),
        SupervisedSettings(steps=4, batch=16, only_right=True),
        SupervisedSettings(steps=4, batch=16, context="{shown} ; {prompt}"),
    ],
    ids=["plain", "right", "told"],
)
def test_a_warm_start_from_the_disk_learns_the_same(
    data: Path, codec: CachedCodec, settings: SupervisedSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = demonstrations(data, codec, "train", 14, settings)
    too_large(monkeypatch)
    lying = demonstrations(data, codec, "train", 14, settings)
    assert isinstance(held.prompts, list) and isinstance(lying.prompts, TokenRows)
    assert (list(lying.prompts), list(lying.completions)) == (held.prompts, held.completions) and len(held) > 4
    models = [tiny_policy(), tiny_policy()]
    losses = [fit_supervised(model, rows, settings, seed=3) for model, rows in zip(models, (held, lying), strict=True)]
    assert losses[0] == losses[1]
    loss, other = (negative_log_likelihood(models[0], rows, 64) for rows in (held, lying))
    assert loss == other


def test_of_prompts_that_are_not_held_the_loop_asks_the_reference_itself(
    data: Path, codec: CachedCodec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_large(monkeypatch)
    lying = read_prompts(data, codec, READ["preferences"])
    rollouts = READ["preferences"].rollouts
    assert with_reference(lying, new_learner(SCHEDULE), rollouts, Frozen(), 16384, tmp_path) is lying
    assert all(known.reference_log_probs is None for problem in lying for known in problem.known)


def test_a_held_out_loss_in_parts_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, model = Sequences([[3, 4], [5], [6, 7, 8]] * 3, [[5, 6], [7, 8, 9], [3]] * 3), tiny_policy()
    whole = negative_log_likelihood(model, rows, 64)
    monkeypatch.setattr("models.learner.supervised.PACKED_TOGETHER", 4)
    assert negative_log_likelihood(model, rows, 64) == pytest.approx(whole, abs=1e-12)


def test_a_reward_model_fitted_to_pairs_from_the_disk_is_the_same(
    data: Path, codec: CachedCodec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, flaws = read_pairs(data, codec, "train", 14)
    too_large(monkeypatch)
    lying, same_flaws = read_pairs(data, codec, "train", 14)
    assert isinstance(held, list) and isinstance(lying, PairRows)
    assert list(lying) == held and 10 < len(held) == len(flaws) and flaws == same_flaws
    start = save_start(tmp_path / "policy")
    settings = RewardModelSettings(steps=3, batch_pairs=8)
    scores = []
    for pairs in (held, lying):
        model = reward_model_from_policy(start, seed=0)
        fit_reward_model(model, pairs, settings, seed=1)
        scores.append(score_pairs(model, held))
    assert all((first == other).all() for first, other in zip(*scores, strict=True))
    monkeypatch.setattr(reward_fit, "TOGETHER", 7)
    parts = score_pairs(model, lying)
    for part, whole in zip(parts, scores[0], strict=True):
        assert part.tolist() == pytest.approx(whole.tolist(), abs=1e-5)


def test_a_budget_too_small_is_refused_by_the_same_line(
    data: Path, codec: CachedCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = load_recipe("grpo", ["rollouts.max_tokens=12", "policy.size.positions=20"])
    lines = []
    for _ in range(2):
        problems = read_prompts(data, codec, READ["problems"])
        with pytest.raises(Exception, match="make it at least 20") as raised:
            require_room(problems, made.rollouts, made.objective, codec, 19)
        lines.append(str(raised.value))
        require_room(problems, made.rollouts, made.objective, codec, 20)
        too_large(monkeypatch)
    assert lines[0] == lines[1]


@pytest.mark.thorough
def test_opening_a_large_split_and_drawing_from_it_take_little_memory(tmp_path: Path) -> None:
    """A process that opens 30,000 long prompts and draws a few uses less than 150 MB.

    The prompts have 400 words each, 12 million tokens in all. As Python numbers and texts, they take 300 MB or more.
    """
    code = """
import resource, sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from models.datasets.schema import arrow_schema, file_name
from models.method.curriculum import CurriculumSettings, choose, drawn_at_most
from models.method.problem_rows import Problems
from models.method.tally import Tally
from models.recipes.load import load_recipe
from models.text.token_cache import CachedCodec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from models.text import token_rows
from models.training.read_problems import PromptSections, read_prompts

token_rows.HELD = 1 << 20
folder = Path(sys.argv[1])
schema = arrow_schema("problems")
with pq.ParquetWriter(folder / file_name("problems", "train"), schema) as writer:
    for first in range(0, 30_000, 1000):
        rows = [{"id": f"p{n}", "prompt": f"{n % 997} " + "more words 7 " * 133, "answer": "", "level": 0, "tests": "",
                 "entry_point": ""} for n in range(first, first + 1000)]
        writer.write_table(pa.Table.from_pylist(rows, schema))
words = " ".join(map(str, range(997)))
tokenizer = train_tokenizer(["more words 7 " + words], TokenizerSettings(kind="words", vocabulary=2000))
codec = CachedCodec(tokenizer, folder=folder / "tokens")
recipe = PromptSections(load_recipe(Path(sys.argv[2]), ["rollouts.max_tokens=12", "policy.size.positions=512"]))
codec.prompts(["more words 7 " * 133] * 2048)
begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
problems = read_prompts(folder, codec, recipe)
rule = CurriculumSettings()
texts = sum(len(problem.prompt) for problem in drawn_at_most(problems, rule, 16, 5, 1, False))
drawn = [problem for number in range(5) for problem in choose(problems, rule, Tally(), 16, number, 5, 1)]
assert len(problems) == 30_000 and texts == sum(len(problem.prompt) for problem in drawn) > 0
print(isinstance(problems, Problems), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun)
"""
    (tmp_path / "clean").mkdir()
    command = [sys.executable, "-c", code, str(tmp_path / "clean"), str(ROOT / find_recipe("grpo"))]
    made = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert made.returncode == 0, made.stderr
    lies, grown = made.stdout.split()
    assert lies == "True" and int(grown) < 150_000  # kB
