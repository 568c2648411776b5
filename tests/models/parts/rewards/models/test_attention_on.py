"""Attention on important features: uniform attention by hand, batching, the expert's fit, and refusals."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.base.errors import UserError
from models.learner.log_probs import completion_log_probs, use_packed_attention
from models.learner.packing import Sequences
from models.learner.prompt_attention import attention_to_prompts
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rewards.models.attention_on import AttentionOn
from models.parts.shared.record_expert import fit_expert, stated
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.device_here import placed
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import make_resources

PATTERN = re.compile(r"(?P<name>[a-z]+) (?P<value>-?\d+)")
CODEC = Codec(
    train_tokenizer(["sugar pulse salt 0 1 2 3 4 5 6 7 8 9 yes no ? ; high low"], TokenizerSettings(kind="words"))
)
PROMPT = "sugar 9 ; pulse 4 ; salt 1 ?"


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Records in which sugar decides, pulse has a small effect and salt none."""
    chance = torch.Generator().manual_seed(0)
    rows = []
    for sugar, pulse, salt in torch.randint(0, 10, (300, 3), generator=chance).tolist():
        high = sugar + 0.3 * pulse + float(torch.randn((), generator=chance)) > 6
        rows.append({"prompt": f"sugar {sugar} ; pulse {pulse} ; salt {salt} ?", "answer": "yes" if high else "no"})
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def opened() -> RunResources:
    resources = make_resources(codec=CODEC)
    policy = tiny_policy(vocabulary=len(CODEC.tokenizer)).requires_grad_(False)
    return replace(resources, learner=replace(resources.learner, policy=policy))


def rollouts(*texts: str, prompt: str = PROMPT) -> list[Rollout]:
    problem = Problem("p", prompt, "yes", tokens=tuple(CODEC.prompts([prompt])[0]))
    return [Rollout(problem, 0, tuple(CODEC.completions([text])[0]), None, text, True) for text in texts]


def test_attention_that_is_equal_everywhere_gives_the_share_of_the_tokens(records: Path) -> None:
    resources = opened()
    for layer in resources.learner.policy.model.layers:  # type: ignore[union-attr]
        torch.nn.init.zeros_(layer.self_attn.q_proj.weight)  # type: ignore[union-attr, arg-type]
    made = AttentionOn(records=str(records), top=1).reasoned(resources, rollouts("sugar high ; yes", "no"))
    assert made.values.tolist() == pytest.approx([1 / 3, 1 / 3], abs=1e-6)  # 2 of the 6 tokens of three features
    assert made.reasons == ["sugar", "sugar"] and made.watched == {"uniform": pytest.approx(1 / 3)}
    sequences = Sequences([(5, 6, 7)], [(8, 9)])
    (row,) = attention_to_prompts(resources.learner.policy, sequences)
    assert torch.allclose(row, torch.full((3,), (1 / 3 + 1 / 4) / 2, dtype=torch.float64), atol=1e-12)


def test_the_weights_are_those_of_the_attention_formula_in_the_first_layer() -> None:
    policy = tiny_policy()
    policy.model.layers = policy.model.layers[:1]
    policy.config.num_hidden_layers = 1
    layer, prompt, completion = policy.model.layers[0], (5, 6, 7, 8), (9, 10)
    (row,) = attention_to_prompts(policy, Sequences([prompt], [completion]))
    ids = placed(torch.tensor([[*prompt, *completion]]))
    states = layer.input_layernorm(policy.model.embed_tokens(ids))
    query, key = (
        norm(projection(states).view(1, 6, -1, 32)).transpose(1, 2)
        for norm, projection in (
            (layer.self_attn.q_norm, layer.self_attn.q_proj),
            (layer.self_attn.k_norm, layer.self_attn.k_proj),
        )
    )
    cos, sin = policy.model.rotary_emb(states, placed(torch.arange(6)[None]))

    def turned(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x * cos + torch.cat([-x[..., 16:], x[..., :16]], -1) * sin
        return result

    scores = turned(query) @ turned(key).transpose(2, 3) / 32**0.5
    causal = placed(torch.ones(6, 6).tril().bool())
    weights = scores.masked_fill(~causal, float("-inf")).softmax(-1)
    assert torch.allclose(row.cpu(), weights[0, :, 3:5, :4].mean((0, 1)).cpu(), atol=1e-6)


def test_a_value_does_not_depend_on_the_batch_and_the_attention_is_restored(records: Path) -> None:
    resources, reward = opened(), AttentionOn(records=str(records), top=1)
    texts = ["sugar high ; yes", "no", "pulse 4 low ; no"]
    policy = resources.learner.policy
    use_packed_attention(policy)
    sequences = Sequences([(5, 6)], [(7, 8)])
    before, _ = completion_log_probs(policy, sequences)
    together = reward(resources, rollouts(*texts))
    alone = torch.cat([reward(resources, rollouts(text)) for text in texts])
    narrow = replace(resources, readings=make_resources(token_budget=16).readings)
    assert torch.allclose(together, alone, atol=1e-6)
    assert torch.allclose(reward(narrow, rollouts(*texts)), together, atol=1e-6)
    assert len({round(value, 6) for value in together.tolist()}) == 3
    assert torch.equal(completion_log_probs(policy, sequences)[0], before)


def test_the_fit_has_no_slope_and_finds_the_features_that_decide(records: Path) -> None:
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    values = [{name: value for name, (value, _) in stated(PATTERN, row["prompt"]).items()} for row in rows]
    answers = [row["answer"] == "yes" for row in rows]
    expert = fit_expert(values, answers, 0.01, "r")
    weights = torch.cat([expert.weights, torch.tensor([expert.bias])]).requires_grad_()
    z = torch.tensor([[row[name] for name in expert.names] for row in values], dtype=torch.float64)
    z = (z - z.mean(0)) / z.std(0, unbiased=False)
    logits, targets = z @ weights[:-1] + weights[-1], torch.tensor(answers, dtype=torch.float64)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
    (slope,) = torch.autograd.grad(loss + 0.005 * weights[:-1].square().sum(), weights)
    assert float(slope.abs().max()) < 1e-9
    right = [(expert.chance(row) > 0.5) == answer for row, answer in zip(values, answers, strict=True)]
    assert sum(right) / len(right) > 0.85
    importance = expert.importance({"sugar": 9.0, "pulse": 9.0, "salt": 9.0, "other": 1.0})
    assert sorted(importance, key=importance.__getitem__) == ["salt", "pulse", "sugar"]
    at = expert.names.index("sugar")
    assert importance["sugar"] == pytest.approx(
        abs(float(expert.weights[at] * (9.0 - expert.mean[at]) / expert.spread[at]))
    )


def test_only_the_places_that_predict_counted_tokens_are_read() -> None:
    policy, sequences = tiny_policy(), Sequences([(5, 6, 7)], [(8, 9, 10)])
    (first,) = attention_to_prompts(policy, Sequences([(5, 6, 7)], [(8,)]))
    (counted,) = attention_to_prompts(policy, sequences, counted=[torch.tensor([True, False, False])])
    assert torch.allclose(counted, first, atol=1e-12)
    assert not torch.allclose(attention_to_prompts(policy, sequences)[0], first, atol=1e-3)


def test_a_prompt_without_a_known_feature_earns_nothing(records: Path) -> None:
    made = AttentionOn(records=str(records)).reasoned(opened(), rollouts("yes", prompt="high low ?"))
    assert made.values.tolist() == [0.0] and made.watched == {}


def test_only_the_tokens_of_a_feature_are_marked(records: Path) -> None:
    marks = AttentionOn(records=str(records), top=1)._marks(CODEC, rollouts("yes")[0].problem.tokens)
    texts = [CODEC.text([[token]])[0] for token in rollouts("yes")[0].problem.tokens]
    assert [text for text, mark in zip(texts, marks[0], strict=True) if mark] == ["sugar", "9"]
    assert [text for text, mark in zip(texts, marks[1], strict=True) if mark] == [
        "sugar",
        "9",
        "pulse",
        "4",
        "salt",
        "1",
    ]


@pytest.mark.parametrize(
    "content, line",
    [('{"prompt": "sugar 1"}\n', r"line 1: not \{\"prompt\": text, \"answer\": text\}"),
     ('{"prompt": "sugar 1", "answer": "yes"}\n', "all records have the same answer"),
     ('{"prompt": "x", "answer": "yes"}\n{"prompt": "y", "answer": "no"}\n', "no record states a feature")],
)  # fmt: skip
def test_records_that_teach_nothing_are_refused(tmp_path: Path, content: str, line: str) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(content)
    with pytest.raises(UserError, match=rf"^rewards\.attention_on\.records: .*{line}"):
        AttentionOn(records=str(file)).try_out()


def test_settings_that_cannot_work_are_refused(records: Path) -> None:
    with pytest.raises(UserError, match=r"^rewards\.attention_on\.feature: the group value is missing"):
        AttentionOn(feature=r"(?P<name>\w+)")
    with pytest.raises(UserError, match=r"records: .* has other content"):
        AttentionOn(records=str(records), sha256="0")
    with pytest.raises(UserError, match=r"rewards\.attention_on\.records: none"):
        load_recipe(find_recipe("eag_rl"), ["rewards.1.records=''"])
