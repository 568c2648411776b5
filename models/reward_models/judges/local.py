"""A judge on this machine: a model folder that is run by the engine that also samples from policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.base.images import shows_images, with_known_images
from models.engines.engine import CompletionRequest, EngineSettings, TokenSampling
from models.engines.transformers_engine import TransformersEngine
from models.learner.all_completions import all_log_probs
from models.learner.image_features import reads_images
from models.learner.packing import Sequences
from models.method.judge import MISSING, Answer, GenerativeJudge, askable, encodable, vote_seed
from models.policies.build import load_causal_model
from models.reward_models.judges.settings import JudgeSettings
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.tokenizer import load_tokenizer


class LocalJudge(GenerativeJudge):
    """A local model with its own tokenizer, which may differ from the policy's; its weights change only by `load`."""

    def __init__(self, folder: Path, settings: JudgeSettings, seed: int) -> None:
        """Open the judge.

        Raises:
            UserError: the folder holds no model.
        """
        self._settings, self._seed, self._folder = settings, seed, folder
        self._codec = Codec(load_tokenizer(folder), settings.chat, ends_of_folder(folder))
        engine_settings = EngineSettings(name="transformers", precision="float32")
        self._engine = TransformersEngine(folder, engine_settings, end=self._codec.ends)
        positions = getattr(self._engine.model.config.get_text_config(), "max_position_embeddings", None)
        self._longest: int | None = None if positions is None else int(positions)

    @property
    def temperature(self) -> float:
        """See `GenerativeJudge.temperature`."""
        return self._settings.temperature

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """See `GenerativeJudge.load`."""
        self._engine.load(weights.items(), version)
        self.__dict__.pop("_reader", None)

    def ask(self, questions: Sequence[str], votes: int = 1, *, greedy: bool = False) -> list[list[Answer]]:
        """See `GenerativeJudge.ask`. A question that leaves no room for an answer gets `MISSING`."""
        requests: list[tuple[str, CompletionRequest]] = []
        for text, ids in self._in_tokens(questions):
            room = self._settings.max_tokens
            if self._longest is not None:
                room = min(room, self._longest - len(ids))
            if room < 1 or not ids:
                continue
            version = self._engine.version
            requests += [
                (text, CompletionRequest(tuple(ids), vote_seed(self._seed, text, vote, version), room))
                for vote in range(votes)
            ]
        sampling = TokenSampling(temperature=0.0 if greedy else self._settings.temperature)
        completions = self._engine.complete([request for _, request in requests], sampling) if requests else []
        texts = self._codec.text([completion.tokens for completion in completions])
        answers: dict[str, list[Answer]] = {}
        for (question, request), completion, text in zip(requests, completions, texts, strict=True):
            log_probs = None if completion.log_probs is None else tuple(completion.log_probs.tolist())
            answer = Answer(text, completion.finished, log_probs, tuple(request.prompt), completion.tokens)
            answers.setdefault(question, []).append(answer)
        return [answers.get(text, [MISSING] * votes) for text in questions]

    def likelihoods(self, questions: Sequence[str], texts: Sequence[str]) -> list[list[float] | None]:
        """See `GenerativeJudge.likelihoods`. Prefixes that the answers share are read once."""
        answers = self._codec.completions(list(texts))
        room = None if self._longest is None else self._longest - max(map(len, answers))
        fitting = [(text, ids) for text, ids in self._in_tokens(questions) if room is None or len(ids) <= room]
        sequences = Sequences([ids for _, ids in fitting for _ in answers], [ids for _ in fitting for ids in answers])
        rows = all_log_probs(self._reader, sequences) if fitting else []
        means = [float(row.double().mean()) for row in rows]
        known = {text: means[at * len(answers) : (at + 1) * len(answers)] for at, (text, _) in enumerate(fitting)}
        return [known.get(text) for text in questions]

    def _in_tokens(self, questions: Sequence[str]) -> list[tuple[str, list[int]]]:
        """Return the distinct questions that can be asked, with their token ids.

        Raises:
            UserError: a question refers to an image, and the judge reads none.
        """
        distinct = askable(questions)
        if not reads_images(self._engine.model) and any(map(shows_images, distinct)):
            raise UserError(
                f"judge: {self._folder} reads no images, and a question refers to one; choose a judge that does, or "
                "leave {prompt} out of the template"
            )
        return list(zip(distinct, self._codec.prompts([self._plain(text) for text in distinct]), strict=True))

    def _plain(self, text: str) -> str:
        """Return a question that can be encoded.

        In a chat, special tokens are spelt out, so that a completion cannot answer for the judge.
        """
        text = with_known_images(encodable(text))
        return self._codec.spelt_out(text) if self._settings.chat else text

    @cached_property
    def _reader(self) -> nn.Module:
        """A second copy of the model, which scores given texts. The engine's own copy samples, and is not changed."""
        model: nn.Module = load_causal_model(self._folder, torch.float32)
        model.load_state_dict(self._engine.model.state_dict())
        return model.eval()

    def close(self) -> None:
        """Free the model."""
        self._engine.close()
