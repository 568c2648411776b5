"""Preference pairs of a prepared data set, encoded as reward models are fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from sys import intern

import numpy as np

from models.datasets.row_table import Names, RowTable, Texts, open_rows
from models.datasets.schema import Kind, Row, available
from models.datasets.task_sets.drawing import SOUND
from models.reward_model.bare_texts import bare_prompts
from models.reward_model.fit import Pair, PairRows
from models.reward_model.gap import GapRows, GapSettings
from models.rollouts.improved import in_context
from models.text.encoding import Codec
from models.text.token_rows import TokenRows, few, rows_in_memory


def read_pairs(
    data: Path, codec: Codec, split: str, longest: int, parallel: bool = False, gap: GapSettings | None = None
) -> tuple[Sequence[Pair], list[str]]:
    """Encoded preference pairs of a split that fit into `longest` tokens, each of a large split read when it is drawn;
    and the kind of flaw of each. `parallel`: the sound demonstrations of the split, each against its own prompt; `gap`:
    each pair behind either of its completions, and behind another answer where `gap.others` asks for that."""
    kind: Kind = "demonstrations" if parallel else "preferences"
    if split not in available(data).get(kind, ()):
        return [], []
    table = open_rows(data, kind, split)  # type: ignore[arg-type]
    if parallel:
        return _parallel(table, codec, longest), []
    if gap is not None:
        others = open_rows(data, "demonstrations", split) if gap.others else None  # type: ignore[arg-type]
        return _gaps(table, codec, longest, gap, others)
    prompts = codec.rows_of_prompts(table.column("prompt"))
    chosen, rejected = (codec.rows_of_completions(table.column(name)) for name in ("chosen", "rejected"))
    fitting = np.flatnonzero(prompts.lengths + np.maximum(chosen.lengths, rejected.lengths) <= longest)
    flaws = [intern(str(flaw)) for some in table.column("flaw") for flaw in some]
    pairs = PairRows(*(rows.take(fitting) for rows in (prompts, chosen, rejected)))
    return pairs.held(), [flaws[row] for row in fitting.tolist()]


def _parallel(table: RowTable, codec: Codec, longest: int) -> Sequence[Pair]:
    """What sound demonstrations say as the better text, and their prompts as the worse, both by themselves."""
    made, original = (codec.rows_of_completions(table.column(name)) for name in ("completion", "prompt"))
    sound = np.array([flaw in ("", SOUND) for some in table.column("flaw") for flaw in some])
    fitting = np.flatnonzero(sound & (1 + np.maximum(made.lengths, original.lengths) <= longest))
    before = rows_in_memory([bare_prompts(len(fitting), codec.end)])
    return PairRows(before, made.take(fitting), original.take(fitting)).held()


def _gaps(
    table: RowTable, codec: Codec, longest: int, gap: GapSettings, others: RowTable | None
) -> tuple[Sequence[Pair], list[str]]:
    """Preferences behind each of their references, and the kind of flaw of each.

    Args:
        others: demonstrations of the prompts, whose completions are references too; None: none are.
    """

    def behind(reference: Callable[[Row], str]) -> TokenRows:
        def context(row: Row) -> str:
            return in_context(gap.context, str(row["prompt"]), reference(row), "")

        return codec.rows_of_prompts(Texts(table, (context,)))

    references: list[Callable[[Row], str]] = [lambda row: str(row["rejected"]), lambda row: str(row["chosen"])]
    if others is not None:
        references.append(_another(others))
    contexts = [behind(reference) for reference in references]
    answers = [codec.rows_of_completions(table.column(name)) for name in ("chosen", "rejected")]
    longest_context = np.maximum.reduce([rows.lengths for rows in contexts])
    fitting = np.flatnonzero(longest_context + np.maximum(*(rows.lengths for rows in answers)) <= longest)
    flaws = [intern(str(flaw)) for some in table.column("flaw") for flaw in some]
    pairs = GapRows(
        [rows.take(fitting) for rows in contexts], *(rows.take(fitting) for rows in answers), anchor=gap.anchor
    )
    tokens = sum(int(rows.lengths[fitting].sum()) for rows in (*contexts, *answers * len(contexts)))
    held = list(pairs) if few(len(pairs), tokens) else pairs
    return held, [flaws[row] for row in fitting.tolist() for _ in contexts]


def _another(demonstrations: RowTable) -> Callable[[Row], str]:
    """Says another answer to the prompt of a preference: the first of its demonstrations, from a place on that the
    preference decides, which is neither of the two; the rejected answer where there is none."""
    names = Names(demonstrations.column("prompt_id"))

    @lru_cache(maxsize=4096)
    def answers(prompt_id: str) -> list[str]:
        return [str(row["completion"]) for row in demonstrations.rows(names.rows([prompt_id])[0])]

    def another(row: Row) -> str:
        chosen, rejected = str(row["chosen"]), str(row["rejected"])
        every = answers(str(row["prompt_id"]))
        begin = len(rejected) % max(1, len(every))
        return next((text for text in (*every[begin:], *every[:begin]) if text not in (chosen, rejected)), rejected)

    return another
