"""Tests of the comparison of served with evaluated answers: it finds the prompts whose answers differ, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.curves.served_answers import as_markdown, differing, evaluated
from models.engines.engine import EngineSettings
from models.evaluation.records import Completion
from tests.support.loopback_server import answering
from tests.support.real_models import save_tiny_qwen

ANSWER = '{"constraints": [{"kind": "lower"}]}'
ROWS = [{"id": f"p{number}", "prompt": f"write {number}", "answer": ANSWER} for number in range(3)]
TRANSFORMERS = EngineSettings(name="transformers", precision="float32")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Completion]:
    folder = save_tiny_qwen(tmp_path_factory.mktemp("base") / "Qwen3-tiny")
    return evaluated(folder, ROWS, 6, TRANSFORMERS)


@pytest.mark.parametrize("changed", [None, 1])
def test_only_a_prompt_that_is_answered_otherwise_differs(answers: list[Completion], changed: int | None) -> None:
    texts = {
        row["prompt"]: answer.text + " " * (number == changed)
        for number, (row, answer) in enumerate(zip(ROWS, answers, strict=True))
    }
    seen: list[dict[str, Any]] = []

    def answer(path: str, body: Any) -> tuple[int, object]:
        if path.endswith("/models"):
            return 200, {"data": [{"id": "policy-v1"}]}
        seen.append(body)
        return 200, {"choices": [{"message": {"content": texts[body["messages"][0]["content"]]}}]}

    with answering(answer) as address:
        differences = differing(address.removesuffix("/v1"), ROWS, answers, 6)
    assert differences == ([] if changed is None else [ROWS[changed]["prompt"]])
    assert all(body["temperature"] == 0 and body["max_tokens"] == 6 for body in seen) and len(seen) == 3


def test_a_page_of_answers_says_which_met_their_constraints() -> None:
    old, new = Completion("Red", 1, False, True), Completion("red\nsun", 2, True, True)
    page = as_markdown(ROWS[:1], [old], [new])
    assert "> write 0" in page and "before (not all met):\n\n    Red" in page
    assert "after (all met):\n\n    red\n    sun" in page
