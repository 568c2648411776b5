"""An environment of verifiers by its id, in a process of the interpreter that has it.

    problem    {"prompt": "Write a poem without the letter e ...", "answer": "{\"task\": 3}"}
    episode    the environment calls the policy over OpenAI's protocol, as often as it wants, and returns a reward

The package conflicts with this project's, so it is installed in an environment of its own. The environment of verifiers
drives its episodes itself: it renders the messages of its task, calls the policy through the gateway of agent programs
(`models.agents.gateway`), and its rubric gives the reward. The tokens of every call are recorded as they were drawn.
The text of the problem's prompt is only shown; the policy reads the messages of the task.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from models.agents.foreign.process import Answer, Host, Hosted, HostLost, Refusal, host_of
from models.agents.gateway.agents import AgentPrograms, ProgramEpisode
from models.agents.gateway.answers import MODEL
from models.agents.gateway.runners import ProgramFailed, Running, Task
from models.agents.gateway.server import Gateway, ProgramEnd
from models.answers.hidden import Hidden, hidden
from models.base.bounds import Positive
from models.base.errors import UserError, shortened
from models.engines.engine import Engine, Sampling
from models.method.environment import Environment, EnvironmentEpisode
from models.method.episode import Episode, EpisodeLimits
from models.method.problem import Problem
from models.method.registry import part
from models.text.encoding import Codec

SETTING = "rollouts.environment"


class TaskAnswer(Hidden):
    """Hidden answer of a problem: the task of the environment."""

    task: Annotated[int, Field(ge=0)]
    """Index of the task in its split, from 0."""
    split: Literal["train", "eval"] = "train"
    """Split of an environment of verifiers up to version 0.1; task sets of later versions have none."""


@part("verifiers")
class Verifiers(Environment):
    """An environment of verifiers."""

    id: str = ""
    """Id of the environment: a module, or OWNER/NAME of an installed package of the hub."""
    python: str = ""
    """Interpreter of the environment in which verifiers and the package are installed."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of its function `load_environment`; with verifiers from version 0.2, keys of its configuration, such as
    {taskset: {game: Hangman-v0}}."""
    packages: tuple[str, ...] = ()
    """Versions that the interpreter must have, such as verifiers==0.1.14. Empty: those that it has when the recipe is
    read. Either way they are part of the recipe, so another version is another recipe."""
    solved_at: Annotated[float, Field(ge=-1e9, le=1e9)] = 1.0
    """Reward from which an episode counts as solved."""
    side_by_side: Positive = 16
    """Number of episodes that run concurrently."""

    needs_answers = True

    def __post_init__(self) -> None:
        if not self.packages and self.python and self.id:
            object.__setattr__(self, "packages", installed_versions(self.python, self.id))

    def try_out(self) -> None:
        """Load the environment.

        Raises:
            UserError: a setting is missing, the interpreter or a package is missing or has another version, or the
                environment cannot be loaded.
        """
        host_for(self)

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Raise a UserError, because the environment calls the policy itself and cannot be stepped."""
        raise UserError(f"{SETTING}: verifiers calls the policy itself; only rollouts: episodes can use it")

    def drive(
        self, engine: Engine, codec: Codec, limits: EpisodeLimits, problems: Sequence[Problem], sampling: Sampling,
        seed: int,
    ) -> list[list[Episode]]:  # fmt: skip
        """Play `sampling.samples` episodes of each problem, [problems][G]. See `models.agents.play.play.play`.

        Raises:
            UserError: an episode ended before its first call of the policy, or has several conversations.
        """
        for problem in problems:
            hidden(problem, TaskAnswer, self.name)
        reasons: dict[str, str] = {}
        programs = _HostedEpisodes(
            command=(), side_by_side=self.side_by_side, shows_answer=True, host=host_for(self),
            solved_at=self.solved_at, reasons=reasons,
        )  # fmt: skip
        driven = programs.drive(engine, codec, limits, problems, sampling, seed)
        return [
            [_in_one_conversation(problem, cast(ProgramEpisode, episode), self.id, reasons) for episode in group]
            for problem, group in zip(problems, driven, strict=True)
        ]


def tasks_of(environment: Verifiers, count: int, split: Literal["train", "eval"] = "train") -> list[Problem]:
    """Return the first tasks of a split as problems, [count, or fewer]; their prompts differ.

    Raises:
        UserError: the environment cannot be loaded, or does not list its tasks.
    """
    try:
        prompts = host_for(environment).ask({"do": "list", "split": split, "count": count}, 600)["prompts"]
    except (HostLost, Refusal, TimeoutError) as error:
        raise UserError(f"environment verifiers, {environment.id}: its tasks cannot be listed ({error})") from None
    seen: set[str] = set()
    problems = []
    for place, prompt in enumerate(prompts):
        text = f"{prompt}\n(task {place})" if prompt in seen or not prompt else prompt
        seen.add(text)
        answer = {"task": place} if split == "train" else {"task": place, "split": split}
        problems.append(Problem(f"{split}-{place}", text, json.dumps(answer)))
    return problems


def host_for(environment: Verifiers) -> Host:
    """Return the host of an environment, loaded, with the versions that the recipe names.

    Raises:
        UserError: see `Verifiers.try_out`.
    """
    if not environment.id or not environment.python:
        missing = "python" if environment.id else "id"
        raise UserError(f"{SETTING}.{missing}: verifiers needs the id of an environment and an interpreter")
    python = str(Path(environment.python).expanduser())
    if shutil.which(python) is None:
        raise UserError(f"{SETTING}.python: {shortened(python)}: no such program; see verifiers in docs/episodes.md")
    host = host_of(Hosted(python, environment.id, json.dumps(environment.arguments, sort_keys=True)))
    has = host.loaded().versions
    for pinned in environment.packages:
        name, _, wanted = pinned.partition("==")
        if has.get(name) != wanted:
            raise UserError(
                f"{SETTING}.packages: {pinned} is wanted, but {python} has {has.get(name, 'none')}; "
                "install that version, or change the recipe"
            )
    return host


@dataclass(frozen=True, kw_only=True)
class _HostedEpisodes(AgentPrograms):
    """Episodes in the process of an environment."""

    host: Host
    solved_at: float
    reasons: dict[str, str]
    """Latest reason for which an episode about a problem failed, by the problem's id."""

    def start(self, gateway: Gateway, session: str, task: Task) -> Running:
        """Begin an episode."""

        def report(answer: Answer | Exception) -> None:
            result: Any = answer
            if isinstance(answer, Exception):
                self.reasons[task["id"]] = gateway.hidden(str(answer))
                result = ProgramFailed(str(answer))
            else:
                result = {"reward": answer.get("reward"), "solved": _reached(answer.get("reward"), self.solved_at)}
            gateway.events.put(ProgramEnd(session, result))

        known = TaskAnswer.model_validate_json(task["answer"])
        address = {"base_url": gateway.address, "key": gateway.key(session), "model": MODEL}
        return _Episode(self.host, {"do": "play", **known.model_dump(), **address}, report)


class _Episode:
    def __init__(self, host: Host, request: Mapping[str, Any], report: Any) -> None:
        self._stop = host.begin(request, report)

    def stop(self) -> None:
        self._stop()


def _reached(reward: Any, solved_at: float) -> bool:
    return isinstance(reward, int | float) and reward >= solved_at


def _in_one_conversation(
    problem: Problem, episode: ProgramEpisode, id: str, reasons: Mapping[str, str]
) -> ProgramEpisode:
    """Return the episode with its conversation's own prompt; it ends with a turn that was cut, if one was."""
    where = f"environment verifiers, {id}: problem {shortened(problem.id)}"
    if not episode.chains:
        reason = {
            "tokens": "its messages leave no room for an answer; raise rollouts.max_tokens",
            "time": "it did not call the policy in time; raise rollouts.seconds",
        }.get(episode.cut, reasons.get(problem.id, "it did not call the policy"))
        raise UserError(f"{where}: an episode could not begin ({shortened(reason, 300)})")
    chain, *others = episode.chains
    if others and episode.cut != "tokens":
        raise UserError(
            f"{where}: it called the policy in {len(episode.chains)} conversations, but episodes have one; run it as a "
            "program (rollouts: program)"
        )
    turns = (*chain.turns[:-1], chain.turns[-1]._replace(reward=episode.reward))
    return ProgramEpisode(
        tokens=chain.tokens, log_probs=chain.log_probs, turns=turns, text="\n".join(turn.text for turn in turns),
        cut=episode.cut, solved=episode.solved, prompt=chain.prompt, chains=(replace(chain, turns=turns),),
    )  # fmt: skip


@cache
def installed_versions(python: str, id: str) -> tuple[str, ...]:
    """Return the versions of verifiers and of the package of an environment, as NAME==VERSION, sorted.

    They are read from the folder of the interpreter's packages, without starting it; empty if that folder is missing.

    Args:
        python: interpreter of a virtual environment.
        id: id of the environment.
    """
    name = id.rsplit("/", 1)[-1].split("@", 1)[0]
    folder = name.replace("-", "_").partition(".")[0].lower()
    places = sorted(Path(python).expanduser().parent.parent.glob("lib/python3.*/site-packages"))
    wanted = [
        distribution
        for distribution in distributions(path=[str(place) for place in places])
        if distribution.name == "verifiers" or _holds(distribution, folder)
    ]
    return tuple(sorted(f"{distribution.name}=={distribution.version}" for distribution in wanted))


def _holds(distribution: Distribution, folder: str) -> bool:
    if distribution.name.lower().replace("-", "_") == folder:
        return True
    record = distribution.read_text("RECORD") or ""
    return f"\n{folder}/__init__.py," in f"\n{record}" or f"\n{folder}.py," in f"\n{record}"
