"""Requests to judges, local and remote: equal answers from both, reproducible votes, and faults of a server.

Both judges are real: a tiny model is trained on known answers, and the project's engine generates, also for the server.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from models.agents.gateway.server import PendingRequest, Refused
from models.base import http_client as client
from models.base.errors import UserError
from models.base.http_client import NoAnswer
from models.method.judge import MISSING, Answer
from models.policies.build import load_causal_model
from models.policies.folder import save_model_folder
from models.recipes.load import load_recipe
from models.reward_models.judges.local import LocalJudge
from models.reward_models.judges.open_judge import opened_judge
from models.reward_models.judges.served import ServedJudge, answer_of
from models.reward_models.judges.settings import JudgeSettings
from models.reward_models.judges.verdict import score
from tests.support.loopback_server import answering, sending
from tests.support.special_tokens import llama_like
from tests.support.tiny_judges import save_judge, served
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC

SHOWN = {"1 + 2 = 3": "#### 9", "1 + 2 = 5": "5 ; #### 0", "3 + 4 = 7": "#### 9"}
QUESTIONS = list(SHOWN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_judge(tmp_path_factory.mktemp("judge") / "judge", SHOWN)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WAIT", 0.01)


def texts(answers: list[list[Answer]]) -> list[list[str]]:
    return [[answer.text for answer in votes] for votes in answers]


@pytest.mark.rotating(of=6)
def test_a_small_judge_says_what_it_was_shown(folder: Path) -> None:
    answers = LocalJudge(folder, JudgeSettings(max_tokens=8), 0).ask(QUESTIONS, greedy=True)
    assert [answer.text for (answer,) in answers] == list(SHOWN.values())
    assert [score(answer, 0, 9) for (answer,) in answers] == [1.0, 0.0, 1.0]
    assert all(answer.finished and answer.log_probs and max(answer.log_probs) <= 0 for (answer,) in answers)


def test_a_completion_ends_no_turn_of_a_judges_chat_and_begins_none(tmp_path: Path) -> None:
    tokenizer = llama_like()
    save_model_folder(tiny_policy(vocabulary=len(tokenizer)), tokenizer, tmp_path / "chat")
    said = {}
    for chat in (True, False):
        judge = LocalJudge(tmp_path / "chat", JudgeSettings(max_tokens=2, chat=chat), 0)
        (answers,) = judge.ask(["4 <turn> assistant #### 9"])
        said[chat] = tokenizer.convert_ids_to_tokens(answers[0].question_tokens)
    assert said[True] == ["<bos>", "user", "4", "<unk>", "<unk>", "assistant", "####", "9", "<turn>", "assistant"]
    assert said[False] == ["<bos>", "4", "<turn>", "assistant", "####", "9"]


def test_a_vote_hangs_on_seed_question_and_number_alone(folder: Path) -> None:
    settings = JudgeSettings(max_tokens=6, temperature=3.0)
    judge = LocalJudge(folder, settings, 0)
    whole = texts(judge.ask(QUESTIONS, 4))
    assert [texts(judge.ask([question], 4))[0] for question in reversed(QUESTIONS)] == whole[::-1]
    assert texts(judge.ask([QUESTIONS[1]] * 2, 2)) == [whole[1][:2]] * 2
    assert len(set(whole[1])) > 1
    assert texts(LocalJudge(folder, settings, 1).ask(QUESTIONS, 4)) != whole


@pytest.mark.rotating(of=6)
def test_a_judge_that_is_handed_weights_answers_and_reads_with_them_and_draws_anew(
    folder: Path, tmp_path: Path
) -> None:
    other = save_judge(tmp_path / "other", dict.fromkeys(QUESTIONS, "#### 5"))
    judge, whole = (LocalJudge(each, JudgeSettings(max_tokens=6, temperature=3.0), 0) for each in (folder, other))
    before = judge.likelihoods(QUESTIONS, ["#### 5"]), texts(judge.ask(QUESTIONS, 4))
    weights = load_causal_model(other, torch.float32).state_dict()
    judge.load(weights, 0)
    assert judge.likelihoods(QUESTIONS, ["#### 5"]) == whole.likelihoods(QUESTIONS, ["#### 5"]) != before[0]
    assert texts(judge.ask(QUESTIONS, 4)) == texts(whole.ask(QUESTIONS, 4)) != before[1]
    judge.load(weights, 3)
    assert texts(judge.ask(QUESTIONS, 4)) != texts(whole.ask(QUESTIONS, 4))
    assert texts(judge.ask(QUESTIONS, greedy=True)) == [["#### 5"]] * 3


def test_an_answer_holds_the_tokens_that_were_read_and_written(folder: Path) -> None:
    (answer,) = LocalJudge(folder, JudgeSettings(max_tokens=8), 0).ask(QUESTIONS[:1], greedy=True)[0]
    assert list(answer.question_tokens) == CODEC.prompts(QUESTIONS[:1])[0]
    assert list(answer.tokens) == CODEC.completions(["#### 9"])[0]
    assert answer.log_probs is not None and len(answer.log_probs) == len(answer.tokens)


def test_what_cannot_be_asked_has_no_answer_and_the_others_have_theirs(folder: Path) -> None:
    judge = LocalJudge(folder, JudgeSettings(max_tokens=8), 0)
    odd = ["", "  \n", "9 " * 600, "1" * 2_000_000, "\x00 \ud800 é ￿"]
    answers = judge.ask([*odd, QUESTIONS[0]], 2, greedy=True)
    assert answers[:4] == [[MISSING] * 2] * 4 and len(answers[4]) == 2
    assert answers[5][0].text == "#### 9"
    assert judge.ask([]) == []


def test_an_answer_that_runs_on_is_no_verdict(folder: Path) -> None:
    (answer,) = LocalJudge(folder, JudgeSettings(max_tokens=1), 0).ask(QUESTIONS[:1], greedy=True)[0]
    assert not answer.finished and score(answer, 0, 9) is None


@contextmanager
def overheard(
    folder: Path, monkeypatch: pytest.MonkeyPatch, max_tokens: int
) -> Iterator[tuple[ServedJudge, list[Mapping[str, Any]]]]:
    """Open a remote judge. Yield it, and a list that collects the body of every request."""
    bodies: list[Mapping[str, Any]] = []
    with served(folder, lambda asked: bodies.append(asked.body)) as (address, key):
        monkeypatch.setenv("MY_KEY", key)
        yield ServedJudge(JudgeSettings(address=address, key_variable="MY_KEY", max_tokens=max_tokens), 0), bodies


def test_a_judge_behind_an_address_says_what_the_same_model_says_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with overheard(folder, monkeypatch, 8) as (there, bodies):
        answers = there.ask([*QUESTIONS, "", QUESTIONS[0]], greedy=True)
        drawn = there.ask(QUESTIONS, 3)
        assert there.ask(QUESTIONS[1:], 3) == drawn[1:]
    here = LocalJudge(folder, JudgeSettings(max_tokens=8), 0).ask(QUESTIONS, greedy=True)
    assert [answer.text for (answer,) in answers[:3]] == [answer.text for (answer,) in here]
    assert answers[3] == [MISSING] and answers[4] == answers[0]
    assert len(bodies) == 3 + 9 + 6 and bodies[0]["model"] == "policy" and bodies[0]["temperature"] == 0.0


def test_what_looks_like_a_special_token_in_a_question_reaches_no_server_as_such(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with overheard(folder, monkeypatch, 2) as (there, bodies):
        there.ask(["9 <|im_end|> </s> [/INST] <｜User｜> <end_of_turn> a <| b |> c <sub> [x] \ud800"])
    said = "9 < |im_end|> < /s> [ /INST] < ｜User｜> < end_of_turn> a <| b |> c <sub> [x] ?"
    assert [body["messages"] for body in bodies] == [[{"role": "user", "content": said}]]


def test_a_key_that_is_not_the_servers_is_refused_and_never_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARDFLOW_JUDGE_KEY", "very-secret")
    with served(folder) as (address, _), pytest.raises(UserError, match=r"^judge\.address: .*401") as refused:
        ServedJudge(JudgeSettings(address=address), 0)
    assert "very-secret" not in str(refused.value)


def test_a_question_that_fails_has_no_answer_and_a_server_that_is_away_gives_none_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = False

    def heard(asked: PendingRequest) -> None:
        if away or "5" in asked.body["messages"][0]["content"]:
            raise Refused(503, "not now")

    with served(folder, heard) as (address, key):
        monkeypatch.setenv("REWARDFLOW_JUDGE_KEY", key)
        judge = ServedJudge(JudgeSettings(address=address, max_tokens=8, tries=2), 0)
        answers = judge.ask(QUESTIONS, greedy=True)
        assert answers[1] == [MISSING] and answers[0][0].text == answers[2][0].text == "#### 9"
        away = True
        with pytest.raises(NoAnswer, match="503"):
            judge.ask(QUESTIONS)


def test_a_vote_whose_answer_breaks_off_is_missing_and_the_others_are_heard() -> None:
    bodies = [b'{"choices": [{"message": {"content": "#### 9"}}]}', b'{"data": [{"id": "m"}]}']

    def reply(path: str) -> bytes:
        body = bodies.pop() if bodies else b""
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        return head + body if body else b"half a line"

    with sending(reply) as address:
        judge = ServedJudge(JudgeSettings(address=address, tries=2, side_by_side=1), 0)
        assert [answer.text for answer in judge.ask(["x"], 3)[0]] == ["#### 9", MISSING.text, MISSING.text]
        with pytest.raises(NoAnswer):
            judge.ask(["x"])


def saying(listed: object, said: object, seconds: float = 0.0) -> AbstractContextManager[str]:
    """Start a server that lists the models `listed`, and after `seconds` answers every request with `said`."""

    def answer(path: str, body: object) -> tuple[int, object]:
        if body is None:
            return 200, listed
        time.sleep(seconds)
        return 200, said

    return answering(answer)


def test_a_server_that_hangs_gives_no_answer_in_its_time() -> None:
    with saying({"data": [{"id": "m"}]}, {}, seconds=5.0) as address:
        judge = ServedJudge(JudgeSettings(address=address, seconds=0.1, tries=1), 0)
        began = time.monotonic()
        with pytest.raises(NoAnswer, match="timed out"):
            judge.ask(["x"])
        assert time.monotonic() - began < 2.0


@pytest.mark.parametrize(
    "said",
    [
        None, [], 7, {}, {"choices": None}, {"choices": []}, {"choices": [None]}, {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}, {"choices": "####"},
    ],
)  # fmt: skip
def test_what_a_server_says_and_is_no_answer_is_none(said: object) -> None:
    assert answer_of(said) == MISSING


def test_log_probs_of_a_server_are_read_where_all_of_them_are_numbers() -> None:
    def answered(content: object) -> tuple[float, ...] | None:
        choice = {"message": {"content": "x"}, "finish_reason": "stop", "logprobs": {"content": content}}
        return answer_of({"choices": [choice]}).log_probs

    assert answered([{"logprob": -1}, {"logprob": -0.5}]) == (-1.0, -0.5)
    for broken in ([], None, 3, [{"logprob": None}], [{"logprob": "x"}], ["x"], [{"logprob": True}]):
        assert answered(broken) is None
    for boundless in (-(10**400), float("-inf"), float("nan"), -1e39):
        assert answered([{"logprob": -1}, {"logprob": boundless}]) is None


def test_a_server_without_the_model_or_with_none_is_refused() -> None:
    with saying({"data": [{"id": "big"}]}, {}) as address:
        with pytest.raises(UserError, match=r"^judge\.model: .* has no model small; it has big"):
            ServedJudge(JudgeSettings(address=address, model="small"), 0)
        ServedJudge(JudgeSettings(address=address, model="big"), 0)
    nothing: list[object] = [{}, [], {"data": []}, {"data": [3]}]
    for listed in nothing:
        with saying(listed, {}) as address, pytest.raises(UserError, match=r"^judge\.model: .* it has none"):
            ServedJudge(JudgeSettings(address=address), 0)


def test_who_judges_is_said_once_and_else_it_is_the_policy_as_it_began(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"^judge: exactly one of path, recipe and address must be set; 2 are, path and address: set to"
    ):
        JudgeSettings(path="x", address="http://127.0.0.1:1/v1")
    with pytest.raises(UserError, match=r"^judge\.model: the name of a model is for judge\.address"):
        JudgeSettings(model="m")
    with opened_judge(JudgeSettings(max_tokens=8), None, folder, 0) as judge:
        assert judge is not None and judge.ask(QUESTIONS[:1], greedy=True)[0][0].text == "#### 9"
    with opened_judge(None, None, folder, 0) as judge:
        assert judge is None
    with pytest.raises(UserError), opened_judge(JudgeSettings(), tmp_path, folder, 0):
        pass


def test_another_judge_takes_the_place_of_a_recipe_s_own_where_that_is_set_to_null() -> None:
    own = "judge.address=http://127.0.0.1:1/v1"
    with pytest.raises(UserError, match=r"judge: exactly one of .* 2 are, recipe and address: set to null"):
        load_recipe("ace_rl", [own])
    judge = load_recipe("ace_rl", [own, "judge.recipe=null"]).judge
    assert judge is not None and judge.recipe is None and judge.address is not None
