"""Judges that read images, local and remote, and questions to a judge that reads none."""

import base64
from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.base.images import content_of, images_in
from models.policies.folder import save_model_folder
from models.reward_models.judges.local import LocalJudge
from models.reward_models.judges.served import ServedJudge
from models.reward_models.judges.settings import JudgeSettings
from tests.support.loopback_server import answering
from tests.support.tiny_judges import save_judge
from tests.support.tiny_vision import rows_about_scenes, tiny_vision_policy

(ABOUT, _), (OTHER, _) = rows_about_scenes(pictures=2, each=1, seed=5)
REFERENCE, OTHER_REFERENCE = (text.split()[0] for text in (ABOUT, OTHER))
UNKNOWN = f"<image:{'0' * 32}>"


def test_a_local_judge_reads_the_image_of_its_question(tmp_path: Path) -> None:
    model, codec = tiny_vision_policy(torch.float32)
    save_model_folder(model, codec.tokenizer, tmp_path / "judge")
    judge = LocalJudge(tmp_path / "judge", JudgeSettings(max_tokens=2), 0)
    questions = [f"{reference} what colour" for reference in (REFERENCE, OTHER_REFERENCE)]
    first, second = judge.likelihoods(questions, ["red"])
    assert first is not None and second is not None and first != second
    ((answer,),) = judge.ask(questions[:1])
    assert sum(token < 0 for token in answer.question_tokens) == 4
    ((answer,),) = judge.ask([f"{REFERENCE} what colour {UNKNOWN}"])  # a model can write such a reference
    assert sum(token < 0 for token in answer.question_tokens) == 4


def test_a_judge_that_reads_no_images_is_not_asked_about_one(tmp_path: Path) -> None:
    judge = LocalJudge(save_judge(tmp_path / "judge", {"1 + 2 = 3": "#### 9"}, steps=1), JudgeSettings(max_tokens=2), 0)
    with pytest.raises(UserError, match=r"judge: .*/judge reads no images, and a question refers to one; choose"):
        judge.ask([f"{REFERENCE} 1 + 2 = 3"])
    assert len(judge.ask([f"{UNKNOWN} 1 + 2 = 3"])[0]) == 1


def test_a_server_gets_images_as_data_urls() -> None:
    bodies: list[Any] = []

    def answer(path: str, body: Any) -> tuple[int, object]:
        if path.endswith("models"):
            return 200, {"data": [{"id": "sees"}]}
        bodies.append(body)
        return 200, {"choices": [{"message": {"content": "9"}, "finish_reason": "stop"}]}

    with answering(answer) as address:
        judge = ServedJudge(JudgeSettings(address=address), 0)
        judge.ask([f"look: {REFERENCE}{OTHER_REFERENCE} what </s> {UNKNOWN}"])
        judge.ask([f"what {UNKNOWN}"])
    shown, plain = (body["messages"][0]["content"] for body in bodies)
    assert [part["type"] for part in shown] == ["text", "image_url", "image_url", "text"]
    assert (shown[0]["text"], shown[3]["text"]) == ("look:", f"what < /s> < {UNKNOWN[1:]}")
    for part, reference in zip(shown[1:3], (REFERENCE, OTHER_REFERENCE), strict=True):
        kind, _, encoded = part["image_url"]["url"].partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(encoded) == content_of(images_in(reference)[0])
    assert plain == f"what {UNKNOWN}"
