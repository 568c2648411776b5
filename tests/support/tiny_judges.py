"""What tests of judges share: one that answers as it is told, a small real one, and a server over an engine."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from models.agents.gateway.conversation import prompt_of
from models.agents.gateway.server import Gateway, PendingRequest, Refused, completion
from models.engines.engine import CompletionRequest, EngineSettings, TokenSampling
from models.engines.transformers_engine import TransformersEngine
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.method.judge import Answer, GenerativeJudge
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.method.world import World
from models.policies.folder import save_model_folder
from models.text.encoding import Codec
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_worlds import CODEC, make_world

MALFORMED = ["", " ", "\x00\x01\x02", "{prompt} {completion}", "x" * 300_000, "#### 9", "é\ud800"]
"""Completions that a reward by a judge must take."""


class Scripted(GenerativeJudge):
    """Answers what a function of question and vote says; remembers what it was asked."""

    def __init__(self, says: Callable[[str, int], str | Answer]) -> None:
        self.says = says
        self.asked: list[str] = []

    def ask(self, questions: Sequence[str], votes: int = 1, *, greedy: bool = False) -> list[list[Answer]]:
        self.asked += questions
        return [[_answer(self.says(question, vote)) for vote in range(votes)] for question in questions]

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """It says the same with any weights."""

    def likelihoods(self, questions: Sequence[str], texts: Sequence[str]) -> list[list[float] | None]:
        """Of the question's characters alone, and other for every text."""
        return [[-float(sum(map(ord, question)) % 97) / len(text) for text in texts] for question in questions]


def world_of(says: Callable[[str, int], str | Answer]) -> World:
    """A world whose judge answers so."""
    return replace(make_world(), judge=Scripted(says))


def rollouts(*texts: str, group: int = 0, prompt: str = "add") -> list[Rollout]:
    """Completions of a prompt, a group of their own."""
    problem = Problem(f"p{group}", prompt, "7")
    return [Rollout(problem, group, (5,), torch.zeros(1), text, True) for text in texts]


def _answer(said: str | Answer) -> Answer:
    return said if isinstance(said, Answer) else Answer(said, True)


def save_judge(
    folder: Path, shown: Mapping[str, str] | Sequence[tuple[str, str]], steps: int = 60, codec: Codec = CODEC
) -> Path:
    """A real judge as a model folder: it was shown what to answer to each question, in words of `codec`; where it was
    shown several answers it gives them by turns."""
    pairs = list(shown.items()) if isinstance(shown, Mapping) else shown
    model = tiny_policy(torch.float32, spread=1.0, vocabulary=len(codec.tokenizer))
    rows = Sequences(
        codec.prompts([question for question, _ in pairs]), codec.completions([answer for _, answer in pairs])
    )
    optimiser = OptimiserSettings(learning_rate=0.02, warmup_steps=5)
    fit_supervised(model, rows, SupervisedSettings(steps=steps, batch=len(pairs), optimiser=optimiser), seed=0)
    save_model_folder(model, codec.tokenizer, folder)
    return folder


@contextmanager
def served(folder: Path, heard: Callable[[PendingRequest], None] = lambda asked: None) -> Iterator[tuple[str, str]]:
    """Address and key of a server on loopback that draws with an engine of ours; `heard` sees every request first."""
    engine = TransformersEngine(folder, EngineSettings(precision="float32"), end=CODEC.ends)
    with Gateway() as gateway:

        def answer() -> None:
            while isinstance(asked := gateway.events.get(), PendingRequest):
                try:
                    heard(asked)
                    body = asked.body
                    ids, _ = prompt_of(CODEC, body, [])
                    ask = CompletionRequest(tuple(ids), int(body["seed"]), int(body["max_tokens"]))
                    (made,) = engine.each([ask], TokenSampling(temperature=float(body["temperature"])))
                    (text,) = CODEC.text([made.tokens])
                    asked.answer(completion(True, [(text, made.finished)], len(ids), len(made.tokens)))
                except Refused as error:
                    asked.answer(error)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield gateway.address, gateway.key("judge")
        finally:
            gateway.events.put(None)  # type: ignore[arg-type]
            thread.join()
