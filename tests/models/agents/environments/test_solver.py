"""A frozen solver: it alone answers, its weights stay, and with nothing prepared its answers are its own."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from models.agents.environments.solver import Solver
from models.agents.play.play import play
from models.agents.play.preparation import read_choice
from models.agents.play.seated import play_seated
from models.agents.play.speakers import SpeakerModel
from models.base.errors import UserError
from models.engines.engine import EngineSettings, Sampling, requests_of
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.evaluate import evaluate
from models.method.environment import EpisodeSettings
from models.method.episode import Episode, EpisodeLimits
from models.method.problem import Problem
from models.parts.rollouts.episodes import as_rollout
from models.policies.build import SizeSettings, new_policy
from models.policies.folder import save_model_folder
from models.text.bridge import bridge_of
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_engines import Saying

WORDS = "0 1 2 3 4 5 6 7 8 9 + = ; #### Hint: done add up twice problem"
TOKENIZER = train_tokenizer([WORDS], TokenizerSettings(kind="words", vocabulary=64))
CODEC = Codec(TOKENIZER)
TEXTS = ["problem 1 + 2", "problem 3 + 4", "problem 2 + 2"]
PROBLEMS = [
    Problem(f"p{number}", text, answer, 1, tuple(ids))
    for number, (text, answer, ids) in enumerate(zip(TEXTS, "374", CODEC.prompts(TEXTS), strict=True))
]
LIMITS = EpisodeLimits(turns=4, turn_tokens=6, seconds=30.0, at_last_turn="kept", when_stuck="masked")
SAMPLING = Sampling(max_tokens=24, samples=3)
SIZE = SizeSettings(hidden=32, layers=1, heads=1, key_value_heads=1, feed_forward=32, positions=64)
Speech = Callable[[list[str], int], str]


def scripted(
    environment: Solver, policy: Speech, solver: Speech, sampling: Sampling = SAMPLING, limits: EpisodeLimits = LIMITS
) -> tuple[list[list[Episode]], Saying, Saying]:
    """Play episodes with two scripted models. Returns the episodes, the policy and the solver."""
    engines = Saying(CODEC, policy), Saying(CODEC, solver)
    voices = {
        name: SpeakerModel(engine, CODEC, bridge_of(CODEC))
        for name, engine in zip(("policy", "frozen"), engines, strict=True)
    }
    episodes = play_seated(voices, environment, limits, PROBLEMS, sampling, 5)  # type: ignore[arg-type]
    return episodes, *engines


def copying(read: list[str], seed: int) -> str:
    """Answer with the last word that was read, which is the hint."""
    return f"#### {read[-1]}"


def sums(read: list[str]) -> int:
    """Return the sum of the two numbers around the last plus sign that was read."""
    place = len(read) - 1 - read[::-1].index("+")
    return int(read[place - 1]) + int(read[place + 1])


def rewards(groups: Sequence[Sequence[Episode]]) -> list[list[float]]:
    return [[sum(turn.reward for turn in episode.turns) for episode in group] for group in groups]


def heard(engine: Saying) -> list[str]:
    """Return the text of each prompt that an engine answered."""
    return CODEC.text([list(prompt) for prompt, _ in engine.asked])


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("solver") / "start"
    save_model_folder(new_policy(SIZE, TOKENIZER, 0), TOKENIZER, folder)
    return folder


def write_pool(folder: Path, rows: Sequence[Any]) -> str:
    file = folder / "pool.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(file)


def pool(folder: Path) -> str:
    return write_pool(folder, [{"prompt": f"problem {n} + {n}", "solution": f"#### {2 * n}"} for n in range(1, 5)])


def test_a_copying_solver_is_always_right_if_the_hint_is_the_answer_and_else_never() -> None:
    episodes, _, _ = scripted(Solver(), lambda read, seed: str(sums(read)), copying)
    assert rewards(episodes) == [[1.0] * 3] * 3
    assert all(episode.solved for group in episodes for episode in group)
    wrong, _, _ = scripted(Solver(wrong=-1.0), lambda read, seed: "9", copying)
    assert rewards(wrong) == [[-1.0] * 3] * 3
    assert not any(episode.solved for group in wrong for episode in group)


def test_a_hint_with_the_answer_earns_nothing_where_leaks_are_refused() -> None:
    episodes, _, solver = scripted(Solver(leaks=False), lambda read, seed: str(sums(read)), copying)
    assert rewards(episodes) == [[0.0] * 3] * 3 and solver.asked == []
    indirect, _, _ = scripted(Solver(leaks=False), lambda read, seed: "add up", lambda read, seed: f"#### {sums(read)}")
    assert rewards(indirect) == [[1.0] * 3] * 3


def test_the_solver_reads_the_problem_and_the_hint_as_one_prompt() -> None:
    _, policy, solver = scripted(Solver(asks="twice ;"), lambda read, seed: "add up", copying)
    assert sorted(set(heard(policy))) == sorted(f"{text} twice ;" for text in TEXTS)
    assert sorted(set(heard(solver))) == sorted(f"{text} Hint: add up" for text in TEXTS)
    assert {ids for ids, _ in solver.asked} == {
        tuple(ids) for ids in CODEC.prompts([f"{text}\nHint: add up" for text in TEXTS])
    }


def test_only_the_policys_words_are_trained_on() -> None:
    episodes, _, _ = scripted(Solver(), lambda read, seed: "add up", copying)
    for group in episodes:
        for episode in group:
            rollout = as_rollout(PROBLEMS[0], 0, episode, LIMITS)
            assert rollout.trained is None and CODEC.text([rollout.completion]) == ["add up"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("settings", [{}, {"prepared": "nothing"}])
def test_with_nothing_prepared_the_answers_are_the_solvers_own_to_the_bit(
    start: Path, temperature: float, settings: dict[str, Any]
) -> None:
    sampling = replace(SAMPLING, temperature=temperature)
    engine = TransformersEngine(start, EngineSettings(precision="float32"), end=CODEC.ends)
    own = CODEC.text([each.tokens for each in engine.complete(alone(sampling), sampling)])
    policy = Saying(CODEC, lambda read, seed: "" if not settings else "add up")
    episodes = EpisodeSettings(environment=Solver(**settings), limits=LIMITS, role="user")
    played = play(policy, CODEC, episodes, PROBLEMS, sampling, 5, start)
    responses = [episode.turns[0].response for group in played for episode in group]
    assert responses == [text if finished else "" for text, finished in zip(own, ended(engine, sampling), strict=True)]
    records = evaluate(engine, CODEC, PROBLEMS, replace(sampling, log_probs=False), 5, None)
    solved = [[episode.solved for episode in group] for group in played]
    assert solved == [[sample.correct for sample in record.samples] for record in records]


def alone(sampling: Sampling) -> Any:
    return requests_of([problem.tokens for problem in PROBLEMS], sampling, 5)


def ended(engine: TransformersEngine, sampling: Sampling) -> list[bool]:
    return [each.finished for each in engine.complete(alone(sampling), sampling)]


def test_the_solvers_weights_stay_and_another_solver_gives_other_answers(start: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    save_model_folder(new_policy(SIZE, TOKENIZER, 1), TOKENIZER, other)
    before = digest(start)
    settings = EpisodeSettings(environment=Solver(), limits=LIMITS, role="user")
    engine = Saying(CODEC, lambda read, seed: "add up")
    own, swapped = (
        play(engine, CODEC, replace(settings, environment=chosen), PROBLEMS, SAMPLING, 5, start)
        for chosen in (Solver(), Solver().with_partner(other))
    )
    assert digest(start) == before
    assert Solver().with_partner(other).frozen == other
    texts = [
        [[turn.response for turn in episode.turns] for group in played for episode in group]
        for played in (own, swapped)
    ]
    assert texts[0] != texts[1]


def digest(folder: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.safetensors")))).hexdigest()


def test_examples_are_read_before_the_problem_in_the_order_of_the_turn(tmp_path: Path) -> None:
    environment = Solver(mode="examples", pool=pool(tmp_path), form="{prepared} ; {prompt}", choose=2)
    episodes, _, solver = scripted(environment, lambda read, seed: "3 1", lambda read, seed: f"#### {sums(read)}")
    assert heard(solver)[0] == "problem 3 + 3 #### 6 problem 1 + 1 #### 2 ; problem 1 + 2"
    assert rewards(episodes) == [[1.0] * 3] * 3


@pytest.mark.parametrize("turn", ["", "1", "1 1", "0 1", "1 5", "1 2 3", "one two", "1 ²"])
def test_a_turn_that_is_not_a_choice_is_not_read_as_such(turn: str) -> None:
    assert read_choice(turn, 4, 2) is None
    assert read_choice("2, 4", 4, 2) == (2, 4)


def test_a_wrong_choice_earns_the_reward_of_a_wrong_answer(tmp_path: Path) -> None:
    environment = Solver(mode="examples", pool=pool(tmp_path), wrong=-1.0)
    episodes, _, solver = scripted(environment, lambda read, seed: "1 1", copying)
    assert rewards(episodes) == [[-1.0] * 3] * 3 and solver.asked == []


def test_random_examples_differ_by_episode_and_a_draw_is_shared_by_all(tmp_path: Path) -> None:
    settings = {"mode": "examples", "pool": pool(tmp_path), "prepared": "random", "form": "{prepared} ; {prompt}"}
    _, _, each = scripted(Solver(**settings), lambda read, seed: "", copying)  # type: ignore[arg-type]
    assert len({text.split(" ; ")[0] for text in heard(each)}) > 3
    _, _, shared = scripted(Solver(**settings, draw=4), lambda read, seed: "", copying)  # type: ignore[arg-type]
    first, second = Random(4).sample(range(1, 5), 2)
    expected = f"problem {first} + {first} #### {2 * first} problem {second} + {second} #### {2 * second}"
    assert {text.split(" ; ")[0] for text in heard(shared)} == {expected}


def test_the_solver_answers_each_sub_question_and_then_the_whole() -> None:
    def policy(read: list[str], seed: int) -> str:
        return "done" if read[-1].isdigit() and "=" in read else f"{read[1]} + {read[3]} ="

    episodes, _, solver = scripted(
        Solver(mode="subproblems"), policy, lambda read, seed: f"#### {sums(read) if read[-1] == '=' else read[-1]}"
    )
    assert rewards(episodes) == [[1.0] * 3] * 3
    assert [turn.text for turn in episodes[0][0].turns] == ["1 + 2 =", "done"]
    assert [turn.response for turn in episodes[0][0].turns] == ["3", "#### 3"]
    assert {"problem 1 + 2 1 + 2 =", "problem 1 + 2 1 + 2 = 3"} <= set(heard(solver))
    assert len(solver.asked) == 2 * 9


def test_after_the_last_sub_question_the_whole_is_answered() -> None:
    episodes, _, solver = scripted(
        Solver(mode="subproblems", questions=2), lambda read, seed: "1 + 1 =", lambda read, seed: f"#### {sums(read)}"
    )
    assert [turn.text for turn in episodes[0][0].turns] == ["1 + 1 =", "1 + 1 ="]
    assert len(solver.asked) == 3 * 9 and not episodes[0][0].cut


def test_the_policy_may_read_the_solvers_own_attempt_first() -> None:
    episodes, policy, solver = scripted(
        Solver(attempt=True, asks="twice"), lambda read, seed: "add up", lambda read, seed: f"#### {len(read)}"
    )
    assert heard(policy)[0] == "problem 1 + 2 #### 4 twice"
    assert sorted(set(heard(solver))) == sorted([*TEXTS, *(f"{text} Hint: add up" for text in TEXTS)])
    assert [turn.response for turn in episodes[0][0].turns] == ["#### 7"]


def test_the_reward_is_the_share_of_right_answers_and_the_first_decides() -> None:
    """Answers of the solver depend on the seed of their seat: the first of an episode has the completion's own."""
    right: dict[int, bool] = {}

    def solver(read: list[str], seed: int) -> str:
        right[seed] = Random(seed).random() < 0.5
        return f"#### {sums(read) if right[seed] else 0}"

    many = replace(SAMPLING, samples=8)
    episodes, _, said = scripted(Solver(answers=4, wrong=-1.0), lambda read, seed: "add up", solver, many)
    values = [value for group in rewards(episodes) for value in group]
    assert len(said.asked) == 4 * 24 and len(right) == 4 * 24
    assert sum(values) / len(values) == pytest.approx(2 * sum(right.values()) / len(right) - 1)
    assert len(set(values)) > 2 and set(values) <= {-1.0, -0.5, 0.0, 0.5, 1.0}
    single, _, _ = scripted(Solver(), lambda read, seed: "add up", solver, many)
    firsts = [[episode.solved for episode in group] for group in episodes]
    assert firsts == [[episode.solved for episode in group] for group in single]


def test_an_answer_that_did_not_end_is_wrong_and_a_hint_takes_room_from_the_answer() -> None:
    long = " ".join(["1"] * 30)
    episodes, _, _ = scripted(Solver(), lambda read, seed: "add up", lambda read, seed: f"{long} #### {sums(read)}")
    assert all(len(episode.turns) == 1 for group in episodes for episode in group)
    limits = replace(LIMITS, turn_tokens=None)
    cut, _, solver = scripted(Solver(), lambda read, seed: " ".join(["1"] * 20), copying, limits=limits)
    assert solver.asked and not any(episode.cut for group in cut for episode in group)
    full, _, solver = scripted(Solver(), lambda read, seed: " ".join(["1"] * 23), copying, limits=limits)
    assert solver.asked == [] and {episode.cut for group in full for episode in group} == {"tokens"}


def test_lessons_show_both_sides_of_a_right_demonstration() -> None:
    shared = {"taught": True, "between": " ; ", "asks": "ask"}
    solution = "1 + 2 = 3 ; 3 + 4 = 7 ; #### 7"
    hint = Solver(**shared, form="{prompt} ; {prepared}")  # type: ignore[arg-type]
    assert hint.lessons("d", "add", solution, True) == (
        ("add", "␞ask␞1 + 2 = 3"),
        ("add ; 1 + 2 = 3", solution),
    )
    whole = Solver(**shared, mode="subproblems", questions=2)  # type: ignore[arg-type]
    assert whole.lessons("d", "add", solution, True) == (
        ("add", "␞ask␞1 + 2 =␞3␞3 + 4 ="),
        ("add\n1 + 2 =", "#### 3"),
        ("add\n1 + 2 = 3\n3 + 4 =", "#### 7"),
        ("add\n1 + 2 = 3\n3 + 4 = 7", solution),
    )
    ended = replace(whole, questions=3).lessons("d", "add", solution, True)[0]
    assert ended == ("add", "␞ask␞1 + 2 =␞3␞3 + 4 =␞7␞done")
    assert hint.lessons("d", "add", solution, False) == whole.lessons("d", "add", solution, False) == ()
    assert hint.lessons("d", "add", "#### 7", True) == () and Solver().most_lessons == 0
    assert len(whole.lessons("d", "add", solution, True)) <= whole.most_lessons


def test_lessons_of_examples_name_examples_of_other_problems(tmp_path: Path) -> None:
    environment = Solver(mode="examples", pool=pool(tmp_path), taught=True, choose=3)
    (_, turn), (read, solution) = environment.lessons("d", "problem 2 + 2", "#### 4", True)
    numbers = [int(word) for word in turn.split()]
    assert len(set(numbers)) == 3 and 2 not in numbers and solution == "#### 4"
    assert read.endswith("\n\nproblem 2 + 2") and read.startswith(f"problem {numbers[0]} + {numbers[0]}\n")
    assert environment.lessons("d", "problem 2 + 2", "#### 4", True)[0][1] == turn


@pytest.mark.parametrize(
    "settings, line",
    [
        ({"form": "{prompt}"}, r"rollouts\.environment\.form: '\{prompt\}' must contain \{prompt\} and \{prepared\}"),
        ({"question": "{question}"}, r"environment\.question: .* must contain \{prompt\} and"),
        ({"prepared": "random"}, "random draws examples; set mode to examples"),
        ({"between": ""}, "between is empty"),
        ({"sha256": "0"}, "has other content than sha256 says: none"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_a_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match=line) as raised:
        Solver(**settings)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "rows, line",
    [
        ([], "holds no worked examples"),
        ([{"prompt": "a"}], "line 1: a worked example is"),
        ([{"prompt": "a", "solution": "b"}, ["a"]], "line 2: a worked example is"),
        ([{"prompt": "a", "solution": "b"}], "choose is 2, but the pool has 1 examples; lower it"),
    ],
)
def test_a_pool_that_cannot_be_used_is_refused_by_a_line(tmp_path: Path, rows: Sequence[Any], line: str) -> None:
    with pytest.raises(UserError, match=line) as raised:
        Solver(mode="examples", pool=write_pool(tmp_path, rows)).try_out()
    assert "\n" not in str(raised.value)


def test_a_missing_pool_and_a_problem_without_an_answer_are_refused_by_a_line() -> None:
    with pytest.raises(UserError, match=r"rollouts\.environment\.pool: name the JSONL file"):
        Solver(mode="examples").try_out()
    with pytest.raises(UserError, match="problem p: it has no answer"):
        Solver().seats(Problem("p", "add", ""))
    with pytest.raises(UserError, match="its episodes have two seats"):
        Solver().open(PROBLEMS[0])


def test_lessons_pair_a_flawed_demonstration_with_flawed_examples(tmp_path: Path) -> None:
    rows = [{"prompt": f"problem {n}", "solution": f"#### {n}", "right": n % 2 == 0} for n in range(6)]
    environment = Solver(mode="examples", pool=write_pool(tmp_path, rows), taught=True, choose=2)
    for right, numbers in ((True, {"1", "3", "5"}), (False, {"2", "4", "6"})):
        chosen = [environment.lessons(f"d{n}", "problem 9", "#### 9", right)[0][1].split() for n in range(20)]
        assert {number for turn in chosen for number in turn} == numbers
