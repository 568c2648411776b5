"""A folder with a value model gives the values of the critic that it was saved from, and broken ones are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.policies.value_model import HEAD, READING, VALUES, ValueReading, load_value_model, save_value_model
from models.reward_models.critic.model import Critic, read_values
from models.reward_models.critic.settings import CriticSettings
from tests.support.tiny_models import COMPLETIONS, PROMPTS, tiny_policy


def saved(folder: Path, settings: CriticSettings, reading: ValueReading) -> Critic:
    torch.manual_seed(3)
    critic = Critic(tiny_policy(torch.float32, spread=3.0), settings)
    torch.nn.init.normal_(critic.head.weight)
    save_value_model(critic.backbone, critic.head, reading, folder)
    return critic


def test_the_value_of_a_text_is_the_critics_at_the_state_after_it(tmp_path: Path) -> None:
    critic = saved(tmp_path / VALUES, CriticSettings(), ValueReading())
    closed = [[*ids, ids[-1]] for ids in COMPLETIONS]
    wanted = [float(row[-1]) for row in read_values(critic, Sequences(PROMPTS, closed))]
    model = load_value_model(tmp_path)  # the policy's folder, which holds values/
    assert model.of_texts(PROMPTS, COMPLETIONS) == pytest.approx(wanted, abs=1e-5)
    assert model.of_texts([], []) == []


def test_a_head_that_classifies_gives_the_mean_of_its_bins(tmp_path: Path) -> None:
    saved(tmp_path, CriticSettings(loss="hl_gauss", bins=4), ValueReading((-1.0, 0.0, 2.0, 5.0)))
    model = load_value_model(tmp_path)
    states = torch.randn(5, model.head.in_features, device=model.head.weight.device)
    shares = (states @ model.head.weight.T + model.head.bias).softmax(-1).cpu()
    expected = -shares[:, 0] + 2 * shares[:, 2] + 5 * shares[:, 3]
    torch.testing.assert_close(model.values(states).cpu(), expected, rtol=1e-4, atol=1e-5)


def test_with_risk_the_value_is_the_log_of_the_mean_of_exponentials() -> None:
    outputs = torch.tensor([[1.0], [7.389056], [-3.0]], dtype=torch.float64)
    values = ValueReading(risk=2.0).values(outputs).tolist()
    assert values[:2] == pytest.approx([0.0, 1.0], abs=1e-6)
    assert values[2] == pytest.approx(-34.5, abs=0.1)  # an estimate that no mean of exponentials can have


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        (READING, "{}", "the value model cannot be read"),
        (READING, "[", "the value model cannot be read"),
        (HEAD, "broken", "the value model cannot be read"),
        ("config.json", "{}", "the value model cannot be read"),
    ],
)
def test_a_broken_folder_is_one_line(tmp_path: Path, name: str, content: str, line: str) -> None:
    saved(tmp_path, CriticSettings(), ValueReading())
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=line) as refused:
        load_value_model(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_folder_without_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no value model"):
        load_value_model(tmp_path)


def test_the_reading_is_stored_as_it_is(tmp_path: Path) -> None:
    saved(tmp_path, CriticSettings(), ValueReading(risk=0.5))
    stored: Any = json.loads((tmp_path / READING).read_text())
    assert stored == {"centres": [], "risk": 0.5}
    assert load_value_model(tmp_path).reading == ValueReading(risk=0.5)
