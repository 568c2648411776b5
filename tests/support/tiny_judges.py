"""Shared code for tests of judges: a judge with fixed answers, a small real judge, and a server with an engine."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from models.agents.gateway.answers import AnswerChoice, ProgramAnswer
from models.agents.gateway.conversation import Conversations
from models.agents.gateway.program_request import read_request
from models.agents.gateway.server import Gateway, PendingRequest, Refused
from models.engines.engine import CompletionRequest, EngineSettings, TokenSampling
from models.engines.transformers_engine import TransformersEngine
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.method.judge import Answer, GenerativeJudge
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.policies.folder import save_model_folder
from models.text.encoding import Codec
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

MALFORMED = ["", " ", "\x00\x01\x02", "{prompt} {completion}", "x" * 300_000, "#### 9", "é\ud800"]
"""Unusual completions that a reward with a judge must accept."""


class Scripted(GenerativeJudge):
    """A judge whose answer is a function of question and vote. It records the questions."""

    def __init__(self, says: Callable[[str, int], str | Answer]) -> None:
        self.says = says
        self.asked: list[str] = []

    def ask(self, questions: Sequence[str], votes: int = 1, *, greedy: bool = False) -> list[list[Answer]]:
        self.asked += questions
        return [[_answer(self.says(question, vote)) for vote in range(votes)] for question in questions]

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Ignore the weights: the answers do not depend on them."""

    def likelihoods(self, questions: Sequence[str], texts: Sequence[str]) -> list[list[float] | None]:
        """Return values that depend only on the characters of the question and the length of the text."""
        return [[-float(sum(map(ord, question)) % 97) / len(text) for text in texts] for question in questions]


def resources_of(says: Callable[[str, int], str | Answer]) -> RunResources:
    """Make resources whose judge returns the given answers."""
    return replace(make_resources(), judge=Scripted(says))


def rollouts(*texts: str, group: int = 0, prompt: str = "add") -> list[Rollout]:
    """Return completions of one prompt, which form one group."""
    problem = Problem(f"p{group}", prompt, "7")
    return [Rollout(problem, group, (5,), torch.zeros(1), text, True) for text in texts]


def _answer(said: str | Answer) -> Answer:
    return said if isinstance(said, Answer) else Answer(said, True)


def save_judge(
    folder: Path, shown: Mapping[str, str] | Sequence[tuple[str, str]], steps: int = 60, codec: Codec = CODEC
) -> Path:
    """Fit a real judge to an answer for each question, in words of `codec`, and save it as a model folder.

    If a question has several answers in `shown`, the judge learns to give each of them with similar probability.
    """
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
    """Run a server on loopback that samples with an engine of the project. Yield its address and key.

    Every request is first passed to `heard`.
    """
    engine = TransformersEngine(folder, EngineSettings(precision="float32"), end=CODEC.ends)
    with Gateway() as gateway:

        def answer() -> None:
            while isinstance(asked := gateway.events.get(), PendingRequest):
                try:
                    heard(asked)
                    body = asked.body
                    ids = Conversations(CODEC).prompt(read_request(body, chat=True), []).ids
                    ask = CompletionRequest(ids, int(body["seed"]), int(body["max_tokens"]))
                    (made,) = engine.complete([ask], TokenSampling(temperature=float(body["temperature"])))
                    (text,) = CODEC.text([made.tokens])
                    choice = AnswerChoice(text, (text,), (), "stop" if made.finished else "length")
                    asked.answer(ProgramAnswer(True, (choice,), len(ids), len(made.tokens)))
                except Refused as error:
                    asked.answer(error)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield gateway.address, gateway.key("judge")
        finally:
            gateway.events.put(None)  # type: ignore[arg-type]
            thread.join()
