"""Questions that depend on one another, answered in order; the last answer is the turn (SPRING, arXiv 2305.15486).

    goal   what is to be reached             ----+
    next   the best next step                <---+  ----+
    act    the next action, only that        <---+------+

A question follows the history, with the context and the questions and answers that it depends on. Questions whose
dependencies are answered are asked in one batch. A question that had no room, or whose answer did not end, is missing
in those that depend on it; if the last one fails, the turn is the policy's own. In the paper the context is the LaTeX
of the game's own paper, the questions are nine, and GPT-4 answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Annotated

from pydantic import Field

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, request_of_call
from models.base.bounds import Count
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part


@dataclass(frozen=True, kw_only=True)
class Question:
    """A node of the graph."""

    name: str
    """Name by which other questions refer to it."""
    ask: str
    """Text of the question."""
    after: tuple[str, ...] = ()
    """Names of the questions whose answers it is asked with."""


QUESTIONS = (
    Question(name="goal", ask="What is to be reached?"),
    Question(name="next", ask="What is the best next step?", after=("goal",)),
    Question(name="act", ask="Write your next action and nothing else.", after=("goal", "next")),
)


def order_of(questions: Sequence[Question]) -> list[list[str]]:
    """Return the names of the questions in levels; those of a level are asked in one batch, after the levels before it.

    Raises:
        ValueError: two have one name, some depend on one another or on an unknown question, or the last one is not
            unique.
    """
    names = [question.name for question in questions]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two questions are called {min(twice)}")
    for question in questions:
        for name in question.after:
            if name not in names:
                raise ValueError(f"{question.name} waits for {name}, which is not a question")
    sorter = TopologicalSorter({question.name: question.after for question in questions})
    try:
        sorter.prepare()
    except CycleError as error:
        raise ValueError(f"questions wait for one another: {' -> '.join(reversed(error.args[1]))}") from None
    waited_for = {name for question in questions for name in question.after}
    if len(last := [name for name in names if name not in waited_for]) != 1:
        raise ValueError(f"the turn is the answer that nothing waits for, and there are {len(last)}: {', '.join(last)}")
    levels = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=names.index)
        levels.append(ready)
        sorter.done(*ready)
    return levels


@part("prompt_graph")
class PromptGraph(Strategy):
    """A graph of questions, asked in topological order."""

    source = SourcePaper(
        138, "SPRING: GPT-4 Out-performs RL Algorithms by Studying Papers and Reasoning (arXiv 2305.15486)"
    )
    questions: Annotated[tuple[Question, ...], Field(min_length=1, max_length=64)] = QUESTIONS
    """Questions, each with `name`, `ask`, and `after`: the names of those whose answers it is asked with."""
    context: str = ""
    """Text before every question, such as the rules of the game."""
    extra_tokens: Count = 1024
    """Tokens in addition to prompt and episode that the engine needs room for: context, questions and answers."""

    def __post_init__(self) -> None:
        order_of(self.questions)

    @property
    def most_calls(self) -> int:
        """One call per question, and the policy's own turn if the last one fails."""
        return len(self.questions) + 1

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests]."""
        answers: list[dict[str, Generated]] = [{} for _ in requests]
        answer_texts: list[dict[str, str]] = [{} for _ in requests]
        levels = order_of(self.questions)
        for level in levels:
            questions = [(place, name) for name in level for place in range(len(requests))]
            question_requests = [
                request_of_call(
                    requests[place],
                    self._names.index(name),
                    self._history_of(policy, requests[place], name, answer_texts[place]),
                )
                for place, name in questions
            ]
            completions = policy.answer(question_requests, drawing)
            for (place, name), generated, text in zip(questions, completions, policy.texts(completions), strict=True):
                if generated is not None and generated.finished:
                    answers[place][name], answer_texts[place][name] = generated, text
        (last,) = levels[-1]
        unanswered_places = [place for place, known in enumerate(answers) if last not in known]
        own = dict(
            zip(
                unanswered_places,
                policy.draft([requests[place] for place in unanswered_places], drawing) if unanswered_places else [],
                strict=True,
            )
        )
        return [own[place] if place in own else known[last] for place, known in enumerate(answers)]

    @cached_property
    def _names(self) -> list[str]:
        return [question.name for question in self.questions]

    def _history_of(
        self, policy: CountedPolicy, request: CompletionRequest, name: str, answer_texts: dict[str, str]
    ) -> tuple[int, ...]:
        """Return the history in which a question is asked, with the answers that it depends on."""
        question = self.questions[self._names.index(name)]
        exchanges = [
            f"{earlier.ask}\n{answer_texts[earlier.name]}"
            for earlier in self.questions
            if earlier.name in question.after and earlier.name in answer_texts
        ]
        return policy.extended(request.prompt, (), "\n".join(filter(None, (self.context, *exchanges, question.ask))))
