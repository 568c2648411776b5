"""Reading of the training pairs of a reward model: preferences of the data, encoded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from sys import intern

import numpy as np

from models.base.errors import UserError
from models.datasets.row_table import RowTable, Texts, open_rows
from models.datasets.schema import SOUND, Kind, Row, Split, available
from models.reward_models.bare_texts import bare_prompts
from models.reward_models.facts import FactSettings, answers_by_prompt
from models.reward_models.fit import Pair, PairRows
from models.reward_models.gap import GapRows, GapSettings
from models.text.encoding import Codec
from models.text.prompt_form import in_context
from models.text.token_rows import TokenRows, few, rows_in_memory


def read_pairs(
    data: Path,
    codec: Codec,
    split: Split,
    longest: int,
    parallel: bool = False,
    gap: GapSettings | None = None,
    facts: FactSettings | None = None,
) -> tuple[Sequence[Pair], list[str]]:
    """Return the encoded preference pairs of a split that fit into `longest` tokens, and the kind of flaw of each.

    The pairs of a large split are read on access. Both are empty if the split has no pairs.

    Args:
        longest: maximum number of tokens of a prompt and the longer of its completions.
        parallel: use the sound demonstrations of the split instead of its preferences, each against its own prompt.
        gap: use each pair twice, after either of its completions; the flaws are then repeated, too.
        facts: read each pair after its prompt with the facts of its problem; pairs whose problem has none are left out.

    Raises:
        UserError: no pair has facts.
    """
    kind: Kind = "demonstrations" if parallel else "preferences"
    if split not in available(data).get(kind, ()):
        return [], []
    table = open_rows(data, kind, split)
    if parallel:
        return _parallel(table, codec, longest), []
    if gap is not None:
        return _gaps(table, codec, longest, gap)
    answers = answers_by_prompt(data, split) if facts is not None else {}

    def with_facts(row: Row) -> str:
        assert facts is not None
        return facts.filled(str(row["prompt"]), answers.get(str(row["prompt"]), ""))

    texts = table.column("prompt") if facts is None else Texts(table, (with_facts,))
    prompts = codec.rows_of_prompts(texts, table.systems())
    chosen, rejected = (codec.rows_of_completions(table.column(name)) for name in ("chosen", "rejected"))
    fitting = np.flatnonzero(prompts.lengths + np.maximum(chosen.lengths, rejected.lengths) <= longest)
    if facts is not None:
        known = np.array([str(prompt) in answers for some in table.column("prompt") for prompt in some])
        fitting = fitting[known[fitting]]
        if not len(fitting):
            raise UserError(f"reward_model.facts: no preference of the {split} split has a problem with its prompt")
    flaws = [intern(str(flaw)) for some in table.column("flaw") for flaw in some]
    pairs = PairRows(*(rows.take(fitting) for rows in (prompts, chosen, rejected)))
    return pairs.held(), [flaws[row] for row in fitting.tolist()]


def _parallel(table: RowTable, codec: Codec, longest: int) -> Sequence[Pair]:
    """Return pairs with sound demonstrations as the better text and their prompts as the worse.

    Both are without a prompt.
    """
    completions, prompts = (codec.rows_of_completions(table.column(name)) for name in ("completion", "prompt"))
    sound = np.array([flaw in ("", SOUND) for some in table.column("flaw") for flaw in some])
    fitting = np.flatnonzero(sound & (1 + np.maximum(completions.lengths, prompts.lengths) <= longest))
    before = rows_in_memory([bare_prompts(len(fitting), codec.end)])
    return PairRows(before, completions.take(fitting), prompts.take(fitting)).held()


def _gaps(table: RowTable, codec: Codec, longest: int, gap: GapSettings) -> tuple[Sequence[Pair], list[str]]:
    """Return preferences after either of their completions, and the kind of flaw of each."""

    def context_rows(column: str) -> TokenRows:
        def context(row: Row) -> str:
            return in_context(gap.context, str(row["prompt"]), str(row[column]), "")

        return codec.rows_of_prompts(Texts(table, (context,)), table.systems())

    contexts = [context_rows(column) for column in ("rejected", "chosen")]
    answers = [codec.rows_of_completions(table.column(name)) for name in ("chosen", "rejected")]
    most = np.maximum(*(rows.lengths for rows in contexts)) + np.maximum(*(rows.lengths for rows in answers))
    fitting = np.flatnonzero(most <= longest)
    flaws = [intern(str(flaw)) for some in table.column("flaw") for flaw in some]
    pairs = GapRows(*(rows.take(fitting) for rows in (*contexts, *answers)), anchor=gap.anchor)
    tokens = sum(int(rows.lengths[fitting].sum()) for rows in (*contexts, *answers, *answers))
    selected = list(pairs) if few(len(pairs), tokens) else pairs
    return selected, [flaws[row] for row in fitting.tolist() for _ in range(2)]
