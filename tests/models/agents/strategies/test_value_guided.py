"""Value-guided decoding reaches the optimum of the reward with a KL penalty, and learned values raise a reward."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.agents.strategies.value_guided import ValueGuided
from models.agents.strategy import Strategic
from models.base.errors import UserError
from models.engines import decoding_loop
from models.engines.decoding_loop import complete
from models.engines.engine import CompletionRequest, EngineSettings, Sampling, TokenSampling, requests_of
from models.engines.transformers_engine import TransformersEngine
from models.engines.value_term import ValueTerm
from models.engines.voice import Voice
from models.learner.log_probs import use_packed_attention
from models.learner.optimiser import OptimiserSettings
from models.method.slots import Slots
from models.parts.advantage.sampled_values import SampledValues
from models.parts.objective.grpo import Grpo
from models.parts.reference.frozen import Frozen
from models.parts.rollouts.sample import Sample
from models.policies.folder import save_model_folder
from models.policies.value_model import ValueModel, ValueReading, save_value_model
from models.reward_models.critic.settings import CriticSettings
from tests.support.device_here import placed
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, Sevens, new_learner, run, save_start
from tests.support.tiny_models import contents, tiny_policy
from tests.support.tiny_resources import CODEC

PROMPT, TOKENS, LONGEST, END, BETA = (3, 2), 4, 3, 1, 1.7
Text = tuple[int, ...]


def texts_after(text: Text = ()) -> Iterator[Text]:
    """Yield all texts that can follow the prompt, each after its beginnings."""
    yield text
    if len(text) < LONGEST and END not in text:
        for token in range(TOKENS):
            yield from texts_after((*text, token))


TEXTS = list(texts_after())
MEAN = ValueReading()
WHOLE = [text for text in TEXTS if END in text or len(text) == LONGEST]
REWARDS = dict(zip(WHOLE, torch.randn(len(WHOLE), generator=torch.Generator().manual_seed(4)).tolist(), strict=True))


@pytest.fixture(scope="module")
def policy() -> Any:
    model = tiny_policy(vocabulary=TOKENS, spread=3.0)
    use_packed_attention(model)
    return model


@pytest.fixture(scope="module")
def chances(policy: Any) -> dict[Text, Tensor]:
    """Return log p(. | text), [vocabulary], for every text that can be continued."""
    rows = {}
    with torch.no_grad():
        for text in TEXTS:
            logits = policy(placed(torch.tensor([[*PROMPT, *text]]))).logits[0, -1]
            rows[text] = torch.log_softmax(logits, -1).cpu()
    return rows


@pytest.fixture(scope="module")
def soft_values(chances: dict[Text, Tensor]) -> dict[Text, float]:
    """Return log E[exp(beta R)] / beta of every text, by enumeration from the end."""
    values: dict[Text, float] = {}
    for text in reversed(TEXTS):
        if text in REWARDS:
            values[text] = REWARDS[text]
        else:
            following = torch.tensor([values[(*text, token)] for token in range(TOKENS)], dtype=torch.float64)
            values[text] = float(torch.logsumexp(chances[text] + BETA * following, 0)) / BETA
    return values


def backbone_of(seed: int) -> Any:
    model = tiny_policy(seed=seed, vocabulary=TOKENS, hidden=128).model
    use_packed_attention(model)
    return model


def value_model(targets: dict[Text, float], reading: ValueReading = MEAN, seed: int = 5) -> ValueModel:
    """Fit a linear head to the targets of all texts but the empty one, exactly: it has more weights than texts."""
    backbone = backbone_of(seed)
    texts = [text for text in TEXTS if text]
    with torch.no_grad():
        states = torch.stack([backbone(placed(torch.tensor([[*PROMPT, *text]])))[0][0, -1] for text in texts])
        head = nn.Linear(states.shape[1], 1, dtype=torch.float64, device=states.device)
        wanted = torch.tensor([targets[text] for text in texts], dtype=torch.float64, device=states.device)
        solution = torch.linalg.lstsq(torch.cat([states, torch.ones_like(states[:, :1])], 1), wanted[:, None]).solution
        head.weight.copy_(solution[:-1].T)
        head.bias.copy_(solution[-1])
    return ValueModel(backbone, head, reading)


def drawn(
    policy: Any, terms: list[ValueTerm], monkeypatch: pytest.MonkeyPatch, samples: int = 150
) -> dict[Text, float]:
    """Sample completions; return the probability that each was drawn with, the product over its tokens."""
    steps: list[Tensor] = []
    draw = decoding_loop.draw_tokens

    def record(log_probs: Tensor, points: Tensor) -> Tensor:
        steps.append(log_probs.cpu())
        return draw(log_probs, points)

    monkeypatch.setattr(decoding_loop, "draw_tokens", record)
    requests = requests_of([PROMPT], Sampling(max_tokens=LONGEST, samples=samples), 3)
    voice = Voice(lambda: nullcontext(policy))
    made = complete([voice], requests, TokenSampling(), end=END, most=samples, terms=terms)
    return {
        completion.tokens: math.exp(sum(float(steps[step][row, token]) for step, token in enumerate(completion.tokens)))
        for row, completion in enumerate(made)
    }


@pytest.mark.parametrize("risk", [0.0, BETA])
def test_with_soft_values_completions_are_drawn_from_the_optimum_of_the_penalised_reward(
    policy: Any,
    chances: dict[Text, Tensor],
    soft_values: dict[Text, float],
    risk: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The optimum is p(y) exp(beta R(y)) / Z. The value model states V, or the mean of exp(risk R)."""
    targets = soft_values
    if risk:
        targets = {text: float(torch.tensor(risk * value).double().exp()) for text, value in soft_values.items()}
    model = value_model(targets, ValueReading(risk=risk))
    log_p = {text: float(sum(chances[text[:at]][token] for at, token in enumerate(text))) for text in WHOLE}
    weights = {text: torch.tensor(log_p[text] + BETA * REWARDS[text]).double().exp() for text in WHOLE}
    total = float(sum(weights.values()))
    probabilities = drawn(policy, [ValueTerm(model, BETA, TOKENS)], monkeypatch)
    assert len(probabilities) > 15
    for text, probability in probabilities.items():
        assert probability == pytest.approx(float(weights[text]) / total, abs=1e-6)
    gap = max(abs(probability - float(torch.tensor(log_p[text]).exp())) for text, probability in probabilities.items())
    assert gap > 0.01, "the policy itself is far from the optimum"


def test_several_values_add_up_and_a_token_outside_of_the_likeliest_counts_as_mean(
    policy: Any, chances: dict[Text, Tensor], soft_values: dict[Text, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = {text: float(len(text)) - 3.0 * (END in text) for text in TEXTS}
    models = [value_model(soft_values), value_model(lengths, seed=6)]
    betas = (1.3, -0.4)
    for k in (TOKENS, 2):
        terms = [ValueTerm(model, beta, k) for model, beta in zip(models, betas, strict=True)]
        probabilities = drawn(policy, terms, monkeypatch, 40)
        for text, probability in probabilities.items():
            expected = 1.0
            for at, token in enumerate(text):
                before, likeliest = text[:at], chances[text[:at]].topk(k).indices.tolist()
                total = chances[before].clone()
                for beta, values in zip(betas, (soft_values, lengths), strict=True):
                    read = torch.tensor([values[(*before, candidate)] for candidate in likeliest]).double()
                    total[likeliest] += beta * (read - read.mean())
                expected *= float(torch.softmax(total, 0)[token])
            assert probability == pytest.approx(expected, abs=1e-6)


@pytest.mark.rotating(of=6)
def test_completions_do_not_depend_on_the_batch_they_are_drawn_in(policy: Any, soft_values: dict[Text, float]) -> None:
    term = ValueTerm(value_model(soft_values), 0.5, 3)
    requests = requests_of([PROMPT, (2,), (3, 3, 0)], Sampling(max_tokens=14, samples=5), 9)
    voice = Voice(lambda: nullcontext(policy))
    together, apart = (
        [made.tokens for made in complete([voice], requests, TokenSampling(), end=END, most=most, terms=[term])]
        for most in (15, 1)
    )
    assert together == apart and len(set(map(len, together))) > 3


def guided(engine: TransformersEngine, strategy: ValueGuided, samples: int = 60) -> list[Any]:
    requests = requests_of([problem.tokens for problem in PROBLEMS], Sampling(max_tokens=5, samples=samples), 5)
    return Strategic(engine, CODEC, strategy, 64).complete(requests, TokenSampling(log_probs=False))


def sevens(completions: list[Any]) -> Tensor:
    texts = CODEC.text([made.tokens for made in completions])
    words = [text.split() for text in texts]
    return torch.tensor([row.count("7") / max(1, len(row)) for row in words])


@pytest.mark.rotating(of=6)
def test_values_learned_from_samples_raise_the_reward_and_a_negative_factor_lowers_it(tmp_path: Path) -> None:
    """The policy keeps its weights, bit for bit. A factor of zero gives the policy's own completions."""
    start = save_start(tmp_path / "start")
    optimiser = OptimiserSettings(learning_rate=3e-3, warmup_steps=2)
    values = SampledValues(critic=CriticSettings(epochs=2, minibatches=2, optimiser=optimiser))
    slots = Slots(Sample(prompts=6, group_size=16, max_tokens=5), [Sevens()], [], values, Grpo(), Frozen())
    learner = new_learner(SCHEDULE)
    learner.companions[values.companion] = values.accompany(learner.policy)  # type: ignore[assignment]
    before = {name: value.clone() for name, value in learner.policy.state_dict().items()}
    schedule = replace(SCHEDULE, rounds=8, checkpoint_every=100, samples_every=100)
    _, diary = run(start, tmp_path / "checkpoints", schedule=schedule, slots=slots, learner=learner)
    assert all(torch.equal(value, before[name]) for name, value in learner.policy.state_dict().items())
    assert diary.metrics[8]["critic/loss"] < diary.metrics[1]["critic/loss"]
    folder = tmp_path / "policy"
    trained: Any = learner.policy
    save_model_folder(trained, CODEC.tokenizer, folder, lambda into: values.export(learner, into))
    engine = TransformersEngine(folder, EngineSettings(precision="float32"), end=CODEC.ends)
    plain, more, less = (
        sevens(guided(engine, ValueGuided(values=(str(folder),), betas=(beta,)))) for beta in (0.0, 8.0, -8.0)
    )
    for higher, lower in ((more, plain), (plain, less)):
        error = float((higher.var() / len(higher) + lower.var() / len(lower)).sqrt())
        assert higher.mean() - lower.mean() > 3 * error
    alone = engine.complete(
        requests_of([problem.tokens for problem in PROBLEMS], Sampling(max_tokens=5, samples=4), 5),
        TokenSampling(log_probs=False),
    )
    zero = guided(engine, ValueGuided(values=(str(folder),), betas=(0.0,)), samples=4)
    assert contents(zero) == contents(alone)


def test_settings_and_folders_that_do_not_fit_are_one_line(tmp_path: Path) -> None:
    engine = TransformersEngine(save_start(tmp_path / "start"), EngineSettings(precision="float32"), end=CODEC.ends)
    with pytest.raises(UserError, match=r"strategy.betas: 1 factors for 2 value models"):
        ValueGuided(values=("a", "b"))
    with pytest.raises(UserError, match=r"strategy.values: name the folder"):
        guided(engine, ValueGuided(), 1)
    with pytest.raises(UserError, match="start: holds no value model"):
        guided(engine, ValueGuided(values=(str(tmp_path / "start"),)), 1)
    backbone = backbone_of(0)
    save_value_model(backbone, nn.Linear(128, 1), ValueReading(), tmp_path / "values")
    with pytest.raises(UserError, match="has 4 tokens, and the policy 24"):
        guided(engine, ValueGuided(values=(str(tmp_path / "values"),)), 1)


def test_the_strategy_is_joint_only_if_it_changes_something() -> None:
    assert ValueGuided().joint and not ValueGuided(betas=(0.0,)).joint


def test_an_end_that_a_request_adds_ends_a_guided_completion(policy: Any, soft_values: dict[Text, float]) -> None:
    term = ValueTerm(value_model(soft_values), 0.1, 4)
    request = CompletionRequest(PROMPT, 3, 24, stops=(0, 2, 3))
    (made,) = complete([Voice(lambda: nullcontext(policy))], [request], TokenSampling(), end=END, most=1, terms=[term])
    assert made.finished and len(made.tokens) == 1
