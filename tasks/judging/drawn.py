"""Answers that a model gives now: from a folder by this project's engine, or from an OpenAI-compatible server."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from models.base.errors import UserError
from models.base.http_client import NoAnswer
from models.engines.engine import EngineSettings, Sampling
from models.method.judge import MISSING
from models.policies.base_folder import check_base_folder
from models.policies.folder import check_model_folder
from models.policies.use import read_use
from models.reward_models.judges.served import ServedJudge
from models.reward_models.judges.settings import JudgeSettings
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PLACE, PromptForm
from models.text.tokenizer import load_tokenizer
from tasks.compute.gpu_place import of_host
from tasks.compute.shared_engine import borrowed_engine
from tasks.judging.answers import MAX_TOKENS, AnswerSet, Drawing, GivenAnswer
from tasks.judging.problems import JudgedProblem


@dataclass(frozen=True)
class AnsweringModel:
    """A model folder, and how prompts are written for it."""

    folder: Path
    chat: bool | None = None
    """Whether prompts are wrapped in the chat template; None: if the tokenizer has one."""
    system: str | None = None
    template: str | None = None
    trust_remote_code: bool = False
    max_tokens: int | None = None
    """Longest answer in evaluations, in tokens; None: unknown."""


def registered(given: str, model: Callable[[], str]) -> AnsweringModel:
    """Return a registered version, with the prompts of its recipe.

    Raises:
        UserError: the version does not exist, or its files are gone.
    """
    from tasks.registered.policy import registered_policy
    from tasks.registered.recorded_recipe import WHOLE
    from tasks.tracking import recorded

    record = recorded.recorded(given, model)
    if record.version is None:
        raise UserError(f"{record.label} is not a version; `rewardflow models` lists those that there are")
    try:
        recipe = json.loads(recorded.read_text(record.run, WHOLE))
        policy, data = recipe["policy"], recipe["data"]
        form = (bool(policy["chat"]), policy["system"], data["template"], bool(policy["trust_remote_code"]))
        longest = int(recipe["evaluation"]["max_tokens"] or recipe["rollouts"]["max_tokens"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{record.label}: its recipe is not on record, so its prompts are not known") from None
    return AnsweringModel(registered_policy(record.version).folder, *form, max_tokens=longest)


def in_hub_cache(given: str) -> AnsweringModel:
    """Return a model of the hub that is in the local cache; nothing is downloaded.

    Raises:
        UserError: it is not there.
    """
    from huggingface_hub import snapshot_download

    name, _, commit = given.partition("@")
    try:
        return AnsweringModel(Path(snapshot_download(name, revision=commit or None, local_files_only=True)))
    except Exception as error:  # any error of the hub's client
        raise UserError(
            f"{given}: no such file, folder or version, and as a hub id it is not in the local cache "
            f"({type(error).__name__}); `hf download {name}` puts it there"
        ) from None


def drawn(
    source: str, kind: str, model: AnsweringModel, problems: Sequence[JudgedProblem], drawing: Drawing
) -> AnswerSet:
    """Have a model folder answer problems with this project's engine.

    Raises:
        UserError: the folder cannot be loaded, or a prompt does not fit.
    """
    check_model_folder(model.folder)
    tokenizer = load_tokenizer(model.folder, trust_remote_code=model.trust_remote_code)
    chat = bool(tokenizer.chat_template) if model.chat is None else model.chat
    system = model.system if drawing.system is None else drawing.system
    if system and not chat:
        raise UserError(f"--system: {source} has no chat template; --template writes a text around every prompt")
    form = PromptForm.of(system, drawing.template or model.template)
    codec = Codec(tokenizer, chat, ends_of_folder(model.folder), form)
    after = read_use(model.folder).after_prompt
    ids = codec.prompts([problem.prompt for problem in problems], [problem.system for problem in problems])
    prompts = [(*prompt, *after) for prompt in ids]
    longest = max(map(len, prompts))
    max_tokens = _max_tokens(source, model, longest, drawing.max_tokens)
    sampling = Sampling(
        max_tokens=max_tokens, temperature=drawing.temperature, samples=drawing.samples, log_probs=False
    )
    with ExitStack() as opened:
        if torch.cuda.is_available():
            opened.enter_context(of_host(Path(tempfile.gettempdir())))
        engine = opened.enter_context(
            borrowed_engine(
                model.folder,
                EngineSettings(name=drawing.engine),
                longest=longest + max_tokens,
                end=codec.ends,
                trust_remote_code=model.trust_remote_code,
            )
        )
        groups = engine.generate(prompts, sampling, drawing.seed)
    texts = iter(codec.text([made.tokens for group in groups for made in group]))
    answers = [
        GivenAnswer(
            place=f"{source}, problem {problem.id}",
            problem=problem.id,
            text=next(texts),
            finished=made.finished,
            tokens=len(made.tokens),
        )
        for problem, group in zip(problems, groups, strict=True)
        for made in group
    ]
    return AnswerSet(source, kind, tuple(answers))


def _max_tokens(source: str, model: AnsweringModel, prompt: int, wanted: int | None) -> int:
    """Return the longest answer, in tokens.

    Args:
        source: the source, for messages.
        model: the model that answers.
        prompt: tokens of the longest prompt.
        wanted: the length that the user asks for; None: as much as is usual and fits.

    Raises:
        UserError: the model has no room for it.
    """
    positions, _ = check_base_folder(model.folder)
    room = prompt + (wanted or MAX_TOKENS) if positions is None else positions
    limit = wanted or min(model.max_tokens or MAX_TOKENS, room - prompt)
    if limit < 1 or prompt + limit > room:
        raise UserError(
            f"{source}: the longest prompt has {prompt:,} tokens and the model {room:,} positions, which leaves no "
            f"room for an answer of {wanted or 1:,} tokens; a smaller --max-tokens, or shorter problems"
        )
    return limit


def served(source: str, problems: Sequence[JudgedProblem], drawing: Drawing) -> AnswerSet:
    """Have an OpenAI-compatible server answer problems, as chats of one message.

    Raises:
        UserError: the server does not answer, has no such model, or gave no answer to a problem.
    """
    address, _, name = source.partition("#")
    if drawing.system is not None:
        raise UserError(f"--system: {source} is an address; its server writes the system message")
    settings = JudgeSettings(
        address=address,
        model=name or None,
        key_variable=drawing.key_variable,
        max_tokens=drawing.max_tokens or MAX_TOKENS,
        temperature=drawing.temperature,
    )
    form = PromptForm(template=drawing.template or PLACE)
    questions = [form.text(problem.prompt, problem.system) for problem in problems]
    try:
        server = ServedJudge(settings, drawing.seed)
        answered = server.ask(questions, drawing.samples, greedy=drawing.temperature == 0)
    except UserError as error:
        raise UserError(f"{source}: {str(error).split(': ', 1)[-1]}") from None
    except NoAnswer as error:
        raise UserError(str(error)) from None
    unanswered = sum(answer is MISSING for group in answered for answer in group)
    if unanswered:
        raise UserError(f"{source}: no answer to {unanswered:,} of {len(problems) * drawing.samples:,} requests")
    answers = [
        GivenAnswer(
            place=f"{source}, problem {problem.id}", problem=problem.id, text=answer.text, finished=answer.finished
        )
        for problem, group in zip(problems, answered, strict=True)
        for answer in group
    ]
    return AnswerSet(source, "address", tuple(answers))
