"""Answers that models give: folders, the hub's cache, and OpenAI-compatible servers on loopback."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from written import judged, write_lines

from models.base.errors import UserError
from models.policies.folder import hash_folder, save_model_folder
from tasks.judging.answers import Drawing
from tasks.judging.compare import Comparison, compare
from tasks.judging.measuring import STRICT
from tasks.judging.read_answers import read_answers
from tasks.judging.sources import source_of
from tasks.registered.recorded_recipe import log_recipe_settings
from tasks.tracking import registry, runs, tags
from tests.support.loopback_server import answering
from tests.support.tiny_models import tiny_policy, word_tokenizer

COUNT = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("model") / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), target)
    return target


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"prompt": f"{number} + 1 =", "answer": str(number + 1)} for number in range(COUNT)]
    return write_lines(tmp_path / "problems.jsonl", rows)


def drawn(champion: str | Path, candidate: str | Path, data: Path | None, **settings: Any):
    drawing = Drawing(**{"max_tokens": 4, "engine": "transformers", **settings.pop("drawing", {})})
    wanted = Comparison(champion=str(champion), candidate=str(candidate), data=data, drawing=drawing, **settings)
    return compare(wanted, lambda: "")


def test_two_folders_answer_the_problems_and_their_answers_can_be_judged_again(
    folder: Path, data: Path, tmp_path: Path
) -> None:
    judgement = drawn(folder, folder, data, drawing={"samples": 2, "temperature": 1.0}, save=tmp_path / "kept")
    side = judgement.measured.candidate
    assert judgement.verdict.checks[0].failed and judgement.verdict.difference.estimate == 0.0
    assert side.answers.kind == "model folder" and side.samples == (2, 2)
    assert judgement.verifier == "exact_answer" and judgement.measured.in_tokens
    assert side.answers.digest == judgement.measured.champion.answers.digest
    kept = [read_answers(tmp_path / "kept" / f"{role}.jsonl", role) for role in ("champion", "candidate")]
    assert [answers.digest for answers in kept] == [side.answers.digest] * 2
    again = judged(tmp_path / "kept" / "champion.jsonl", tmp_path / "kept" / "candidate.jsonl", data=data)
    assert again.measured.candidate.metrics[STRICT].tolist() == side.metrics[STRICT].tolist()


def test_another_seed_gives_other_answers_and_few_problems_are_evenly_spaced(folder: Path, data: Path) -> None:
    digests = [
        drawn(folder, folder, data, limit=4, drawing={"samples": 4, "temperature": 1.0, "seed": seed})
        for seed in (0, 1)
    ]
    assert digests[0].problems == 4
    assert digests[0].measured.candidate.answers.digest != digests[1].measured.candidate.answers.digest


def test_a_model_of_the_hub_is_taken_from_the_local_cache_alone(
    folder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    commit = "a" * 40
    model = tmp_path / "hub" / "models--owner--name"
    shutil.copytree(folder, model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    judgement = drawn(folder, "owner/name", data)
    assert judgement.measured.candidate.answers.kind == "hub id"
    assert judgement.measured.candidate.answers.digest == judgement.measured.champion.answers.digest
    with pytest.raises(UserError, match="owner/other: no such file, folder or version, and as a hub id it is not in"):
        drawn(folder, "owner/other", data)


@pytest.mark.rotating(of=6)
def test_a_registered_version_answers_as_its_recipe_asks(
    folder: Path, data: Path, tmp_path: Path, new_store: Callable[[Path], Path]
) -> None:
    new_store(tmp_path / "home")
    flow = runs.open_flow_run("e", "train e")
    recipe = {
        "policy": {"chat": False, "system": None, "trust_remote_code": False},
        "data": {"template": "1 + {prompt}"},
        "evaluation": {"max_tokens": None},
        "rollouts": {"max_tokens": 5},
    }
    log_recipe_settings(flow, recipe, tmp_path, tmp_path / "e.yaml", [])
    logged = registry.log_model(runs.open_step_run(flow, "fine_tune"), folder, "policy", "text-generation")
    registry.register("e-policy", logged, {tags.RUN: flow, tags.WEIGHTS_SHA256: hash_folder(folder)})
    limits = {"max_tokens": None}
    judgement = drawn(folder, "e-policy/1", data, drawing={**limits, "template": "1 + {prompt}"}, registry="e-policy")
    champion, candidate = judgement.measured.champion.answers, judgement.measured.candidate.answers
    assert candidate.kind == "version" and max(answer.tokens or 0 for answer in candidate.answers) == 5
    firsts = [[(answer.text or "").split()[:3] for answer in side.answers] for side in (champion, candidate)]
    assert firsts[0] == firsts[1], "the recipe's template is written around the prompts of the version"
    assert judgement.ledger == "the registry, on e-policy" and judgement.verdict.look.of == 365
    assert [key for key in registry.model_tags("e-policy") if key.startswith(tags.LOOKS)]
    with pytest.raises(UserError, match=r"e-policy. has no version 2"):
        drawn(folder, "e-policy/2", data)


def test_a_server_answers_as_chats_and_each_side_may_be_another_of_its_models(data: Path) -> None:
    asked: list[Any] = []

    def answer(path: str, body: Any) -> tuple[int, object]:
        if path == "/v1/models":
            return 200, {"data": [{"id": "good"}, {"id": "poor"}]}
        asked.append(body)
        number = int(body["messages"][0]["content"].split()[0])
        text = f"#### {number + 1 if body['model'] == 'good' else number}"
        return 200, {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}

    with answering(answer) as address:
        judgement = drawn(f"{address}#poor", f"{address}#good", data)
        assert judgement.measured.candidate.metrics[STRICT].tolist() == [1.0] * COUNT
        assert judgement.measured.champion.metrics[STRICT].tolist() == [0.0] * COUNT
        assert {(body["temperature"], body["max_tokens"]) for body in asked} == {(0.0, 4)}
        with pytest.raises(UserError, match=f"{address}#other: .*has no model other; it has good, poor"):
            drawn(f"{address}#other", f"{address}#good", data)


def test_a_server_that_does_not_answer_every_request_is_refused(data: Path) -> None:
    def answer(path: str, body: Any) -> tuple[int, object]:
        if path == "/v1/models":
            return 200, {"data": [{"id": "m"}]}
        if body["messages"][0]["content"].startswith("3 "):
            return 400, {"error": "no"}
        return 200, {"choices": [{"message": {"role": "assistant", "content": "#### 1"}, "finish_reason": "stop"}]}

    with answering(answer) as address, pytest.raises(UserError, match="no answer to 1 of 8 requests"):
        drawn(address, address, data)


def test_a_model_needs_problems_and_room_for_its_answers(folder: Path, data: Path) -> None:
    with pytest.raises(UserError, match="a model needs problems to answer; --data names them"):
        drawn(folder, folder, None)
    with pytest.raises(UserError, match="the model 64 positions, which leaves no room for an answer of 64 tokens"):
        drawn(folder, folder, data, drawing={"max_tokens": 64})
    with pytest.raises(UserError, match=r"--system: .* has no chat template"):
        drawn(folder, folder, data, drawing={"system": "Think."})


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("http://127.0.0.1:8000/v1", "address"),
        ("https://example.org/v1#m", "address"),
        ("champion", "version"),
        ("12", "version"),
        ("arithmetic-policy/3", "version"),
        ("models:/arithmetic-policy@champion", "version"),
        ("Qwen/Qwen3-0.6B", "hub id"),
        ("Qwen/Qwen3-0.6B@" + "a" * 40, "version"),
    ],
)
def test_a_source_is_recognised_by_its_name(given: str, kind: str) -> None:
    assert source_of(given, "--champion").kind == (kind if "@" + "a" * 40 not in given else "hub id")


def test_a_source_that_is_nothing_known_is_refused() -> None:
    with pytest.raises(UserError, match=r"--candidate: answers.jsonl: no such file or folder, and not a version"):
        source_of("answers.jsonl", "--candidate")
