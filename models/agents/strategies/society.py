"""Copies of the policy in different roles read each other's answers, and then decide on one turn.

After Mindstorms in Natural Language-Based Societies of Mind (arXiv 2305.17066):

    every member answers; in each interview every member reads the others' answers, and answers again
    democracy   the answer that most members gave; of several, the one of the first member among them
    monarchy    the first member reads all answers, and its own last answer is the turn

The paper's societies have up to 129 members, among them vision models and image generators; here all are copies of one
policy, which differ in their instructions. A member that has no room for the others' answers keeps its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from models.agents.strategy import CountedPolicy, SourcePaper, Strategy, request_of_call
from models.answers.ballot import winner
from models.base.bounds import Count
from models.engines.engine import CompletionRequest, Generated, TokenSampling
from models.method.registry import part


@part("society")
class Society(Strategy):
    """Role-prompted copies that read each other's answers, and vote or obey."""

    source = SourcePaper(22, "Mindstorms in Natural Language-Based Societies of Mind (arXiv 2305.17066)")
    members: Annotated[tuple[str, ...], Field(min_length=1, max_length=129)] = (
        "",
        "Work it out step by step.",
        "Check every step before you answer.",
    )
    """Instruction of each member before it answers; empty: none."""
    interviews: Annotated[int, Field(ge=0, le=8)] = 1
    """How often members read the others' answers, and answer again."""
    structure: Literal["democracy", "monarchy"] = "democracy"
    """The decision: by a majority of the members, or by the first of them."""
    others: str = "The others answered:\n{answers}\nWhat do you answer now?"
    """Question to the members; `{answers}` are the others' answers, one per line."""
    extra_tokens: Count = 512
    """Tokens in addition to prompt and episode that the engine needs room for: roles, answers and questions."""

    @property
    def most_calls(self) -> int:
        """Every member's answers, and a monarch's last answer."""
        return len(self.members) * (1 + self.interviews) + (self.structure == "monarchy")

    def turns(
        self, policy: CountedPolicy, requests: Sequence[CompletionRequest], drawing: TokenSampling
    ) -> list[Generated]:
        """Return the turn of each request, [requests]."""
        count = len(self.members)
        own = [request for request in requests for _ in self.members]
        histories = [self._begin(policy, request, role) for request in requests for role in self.members]
        answers = policy.draft(
            [
                request_of_call(request, place % count, ids)
                for place, (request, ids) in enumerate(zip(own, histories, strict=True))
            ],
            drawing,
        )
        for number in range(self.interviews):
            self._ask(policy, own, histories, answers, range(len(own)), drawing, (1 + number) * count)
        if self.structure == "monarchy":
            self._ask(policy, own, histories, answers, range(0, len(own), count), drawing, self.most_calls - 1)
        texts = policy.texts(answers)
        decisions = []
        for at in range(0, len(own), count):
            rules = self.structure == "monarchy" and answers[at].finished
            decisions.append(answers[at if rules else at + winner(texts[at : at + count])])
        return decisions

    def _begin(self, policy: CountedPolicy, request: CompletionRequest, role: str) -> tuple[int, ...]:
        """Return the first prompt of a member; an instruction that leaves no room for a whole turn is omitted."""
        plain = tuple(request.prompt)
        if not role:
            return plain
        instructed = policy.extended(plain, (), role)
        return instructed if policy.fits(instructed, request.max_tokens) else plain

    def _ask(
        self,
        policy: CountedPolicy,
        own: Sequence[CompletionRequest],
        histories: list[tuple[int, ...]],
        answers: list[Generated],
        speaking: Sequence[int],
        drawing: TokenSampling,
        call: int,
    ) -> None:
        """Let the members at the places `speaking` read the others' answers, and update their answers in place."""
        count, texts = len(self.members), policy.texts(answers)
        prompts = []
        for place in speaking:
            first = place - place % count
            others = [texts[other] for other in range(first, first + count) if other != place and texts[other]]
            question = self.others.replace("{answers}", "\n".join(others))
            prompts.append(policy.extended(histories[place], answers[place].tokens, question))
        requests = [
            request_of_call(own[place], call + place % count, ids) for place, ids in zip(speaking, prompts, strict=True)
        ]
        for place, ids, answer in zip(speaking, prompts, policy.answer(requests, drawing), strict=True):
            if answer is not None and answer.finished:
                histories[place], answers[place] = ids, answer
