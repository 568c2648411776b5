"""Evaluation in the run's tokens of policies that may have tokenizers of their own.

The tokenizer of a new policy is trained on the data, so a champion's may number its tokens differently. The champion
generates in its own tokens. Problems are selected, lengths counted and reward scores computed in those of the run, so
that the comparison is on the same problems, in the same unit, and the reward model reads the text as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from torch import Tensor

from models.evaluation.records import Completion, PromptRecord
from models.learner.packing import Sequences
from models.method.problem import Problem, texts_of
from models.reward_models.facts import FactScorer
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PromptForm
from models.text.tokenizer import load_tokenizer
from models.training.read_problems import LengthSections, read_problems


@dataclass(frozen=True)
class RunTokens:
    """The tokenizers of a policy and of the run."""

    own: Codec
    run: Codec

    @classmethod
    def read(cls, policy: Path, run: Path | None, recipe: LengthSections) -> RunTokens:
        """Read the tokenizers of two model folders; `run` None: the policy's own is the run's."""

        def codec(folder: Path) -> Codec:
            tokenizer = load_tokenizer(folder, trust_remote_code=recipe.policy.trust_remote_code)
            form = PromptForm.of(recipe.policy.system, recipe.data_template)
            return Codec(tokenizer, recipe.policy.chat, ends_of_folder(folder), form)

        own = codec(policy)
        return cls(own, own if run in (None, policy) else codec(run))

    @cached_property
    def alike(self) -> bool:
        """Whether both have the same token ids and the same end tokens."""
        if self.own is self.run:
            return True
        ends = (self.own.end, self.own.ends) == (self.run.end, self.run.ends)
        return ends and bool(self.own.tokenizer.get_vocab() == self.run.tokenizer.get_vocab())

    def problems(self, data: Path, split: str, recipe: LengthSections, limit: int | None) -> list[Problem]:
        """Read the problems that fit by the run's tokens, with prompts in the policy's tokens; see `read_problems`."""
        chosen = read_problems(data, self.run, split, recipe, limit)
        if self.alike:
            return chosen
        prompts = self.own.prompts(*texts_of(chosen))
        return [replace(problem, tokens=tuple(ids)) for problem, ids in zip(chosen, prompts, strict=True)]

    def scorer(
        self, score: Callable[[Sequences], Tensor] | None, problems: Sequence[Problem]
    ) -> Callable[[Sequences], Tensor] | None:
        """Wrap `score`, which reads the run's tokens, so that it scores sequences in the policy's tokens.

        Their text is encoded again.

        Args:
            score: scores of prompts with their completions, [completions].
            problems: all problems whose completions will be scored, with prompts in the policy's own tokens.
        """
        if score is None or (self.alike and not isinstance(score, FactScorer)):
            return score
        ours = self.run.prompts(*texts_of(problems))
        read = score.of_problems(problems, ours) if isinstance(score, FactScorer) else score
        if self.alike:
            return read
        prompts = {tuple(problem.tokens): ids for problem, ids in zip(problems, ours, strict=True)}

        def score_anew(sequences: Sequences) -> Tensor:
            texts = self.own.text(sequences.completions)
            finished = [bool(ids) and ids[-1] in self.own.ends for ids in sequences.completions]
            return read(Sequences([prompts[tuple(ids)] for ids in sequences.prompts], self._encoded(texts, finished)))

        return score_anew

    def counted(self, records: Sequence[PromptRecord]) -> list[PromptRecord]:
        """Return `records` with lengths in the run's tokens."""
        if self.alike:
            return list(records)

        written = [completion for record in records for completion in (record.greedy, *record.samples)]
        encoded = self._encoded(
            [completion.text for completion in written], [completion.finished for completion in written]
        )
        lengths = map(len, encoded)

        def recount(completion: Completion) -> Completion:
            return replace(completion, tokens=next(lengths))

        return [
            replace(record, greedy=recount(record.greedy), samples=tuple(map(recount, record.samples)))
            for record in records
        ]

    def _encoded(self, texts: Sequence[str], finished: Sequence[bool]) -> list[list[int]]:
        """Return completions in the run's tokens; truncated ones have no end token."""
        rows = self.run.completions(texts)
        return [ids if whole else ids[:-1] for ids, whole in zip(rows, finished, strict=True)]
