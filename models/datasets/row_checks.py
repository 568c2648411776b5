"""What a suite cannot say of one column alone is computed here first: a true or false, or a number, for each row.

Great Expectations then holds these columns, beside the raw ones, against `data/expectations/`:

    id_is_unique            no other row of the whole data set has this id
    tokens                  tokens of the longest sequence that the row makes
    answer_parses           the verifier can read the expected answer         (only where the file has answers)
    completion_answers      the completion states an answer it can read       (only where the file has answers)
    chosen_differs          chosen and rejected are not the same text
    chosen_is_longer        1 where the chosen text is the longer one, 0 where it is the shorter, one half for a tie
    prompt_not_held_out     the prompt stands in no split that is held out further (train: validation, gate;
                            validation: gate)
    prompt_shares_no_ngram  nor does any n-gram of it                         (settings.ngram > 0)
    level_share flaw_share  share of the rows with this row's label among those with one (only where labels are known)

A column that has no meaning for a file is left out, and so are the checks of it. A null in a text column counts as ""
here: that it is null is for the suite to say. Pure functions of data frames; nothing is changed in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from models.datasets.normalise import ngrams, normalise
from models.datasets.schema import SPLITS

COMPUTED = {
    "id_is_unique": "id",
    "tokens": "prompt",
    "answer_parses": "answer",
    "completion_answers": "completion",
    "chosen_differs": "rejected",
    "chosen_is_longer": "chosen",
    "prompt_not_held_out": "prompt",
    "prompt_shares_no_ngram": "prompt",
    "level_share": "level",
    "flaw_share": "flaw",
}
"""Every column that `computed_columns` may add, and the column that a person must look at where it fails."""

CountTokens = Callable[[Sequence[str]], list[int]]
ParseAnswer = Callable[[str], str | None]


@dataclass(frozen=True)
class Neighbours:
    """What a row is compared with beyond its own file."""

    repeated_ids: frozenset[str]
    """Ids that stand on more than one row of the data set."""
    held_out: Mapping[str, frozenset[str]]
    """Split -> prompts of the splits that are held out further, of every kind, after `normalise`."""
    held_out_ngrams: Mapping[str, frozenset[str]]
    """Split -> their n-grams; none where `ngram` is 0."""
    ngram: int
    """Words of an n-gram; 0 where only whole prompts are compared."""


def neighbours_of(frames: Iterable[tuple[str, pd.DataFrame]], ngram: int) -> Neighbours:
    """Collects what rows are compared with. Time and memory are linear in the words of the held-out prompts.

    Args:
        frames: split ("train", "validation" or "gate") and rows of every file of the data set.
        ngram: words of the n-grams to compare; 0 for whole prompts only.
    """
    ids: Counter[str] = Counter()
    prompts: dict[str, set[str]] = {split: set() for split in SPLITS}
    for split, frame in frames:
        ids.update(text for text in _texts(frame, "id") if text.strip())
        if split != "train":
            prompts[split].update(normalise(prompt) for prompt in _texts(frame, "prompt").unique())
    ngrams_of = {
        split: {gram for prompt in held for gram in ngrams(prompt, ngram)} if ngram else set()
        for split, held in prompts.items()
    }
    return Neighbours(
        repeated_ids=frozenset(name for name, count in ids.items() if count > 1),
        held_out={split: _further(split, prompts) - {""} for split in SPLITS},
        held_out_ngrams={split: _further(split, ngrams_of) for split in SPLITS},
        ngram=ngram,
    )


def computed_columns(
    split: str, frame: pd.DataFrame, neighbours: Neighbours, count_tokens: CountTokens, parse_answer: ParseAnswer
) -> pd.DataFrame:
    """The computed columns of one file, [rows, some of `COMPUTED`], in the order and with the index of `frame`.

    Args:
        split: "train", "validation" or "gate".
        frame: the rows of one file, with the columns of its kind.
        neighbours: what `neighbours_of` found in the whole data set.
        count_tokens: tokens of each text. Called once for each column, with the texts that differ.
        parse_answer: the answer that a completion states, or None where it states none that can be read.
    """
    columns: dict[str, pd.Series] = {"id_is_unique": ~_texts(frame, "id").isin(neighbours.repeated_ids)}
    columns["tokens"] = _tokens(frame, count_tokens)
    if "answer" in frame:
        columns |= _answers(frame, parse_answer)
    if "chosen" in frame:
        chosen, rejected = _texts(frame, "chosen"), _texts(frame, "rejected")
        columns["chosen_differs"] = (chosen.str.strip() != rejected.str.strip()) | (chosen.str.strip() == "")
        columns["chosen_is_longer"] = (np.sign(chosen.str.len() - rejected.str.len()) + 1) / 2
    if split != "gate":
        columns |= _leakage(frame, neighbours, split)
    for name in ("level", "flaw"):
        if name in frame:
            columns |= _label_share(frame, name)
    return pd.DataFrame(columns, index=frame.index)


def _texts(frame: pd.DataFrame, name: str) -> pd.Series:
    return frame[name].fillna("").astype(str)


def _tokens(frame: pd.DataFrame, count_tokens: CountTokens) -> pd.Series:
    def count(name: str) -> pd.Series:
        codes, texts = pd.factorize(_texts(frame, name))
        return pd.Series(np.asarray(count_tokens(list(texts)), dtype=np.int64)[codes], index=frame.index)

    longest = count("prompt")
    if "completion" in frame:
        longest += count("completion")
    if "chosen" in frame:
        longest += np.maximum(count("chosen"), count("rejected"))
    return longest


def _answers(frame: pd.DataFrame, parse_answer: ParseAnswer) -> dict[str, pd.Series]:
    """An expected answer may stand alone (`18`) or in its marker (`#### 18`).

    Alone it is one that the verifier can read where a completion that ends in it, marked, is read back as that
    answer and nothing else; a text of several lines is not. A problem with unit tests needs no answer.
    """
    answers = _texts(frame, "answer").str.strip()
    if not answers.ne("").any():
        return {}
    fits = {text: parse_answer(text) is not None or parse_answer(f"#### {text}") == text for text in answers.unique()}
    tested = _texts(frame, "tests").str.strip().ne("") if "tests" in frame else pd.Series(False, index=frame.index)
    columns = {"answer_parses": answers.map(fits) & answers.ne("") | answers.eq("") & tested}
    if "completion" in frame:
        completions = _texts(frame, "completion")
        stated = {text: not text.strip() or parse_answer(text) is not None for text in completions.unique()}
        columns["completion_answers"] = completions.map(stated) | answers.eq("")
    return columns


def _further(split: str, of: Mapping[str, set[str]]) -> frozenset[str]:
    """What the splits hold that are held out further than this one."""
    return frozenset().union(*(of[later] for later in SPLITS[SPLITS.index(split) + 1 :]))  # type: ignore[arg-type]


def _leakage(frame: pd.DataFrame, neighbours: Neighbours, split: str) -> dict[str, pd.Series]:
    """A prompt that stands in the held-out data whole is reported as that, not for its n-grams too."""
    held_out = neighbours.held_out.get(split, frozenset())
    held_out_ngrams = neighbours.held_out_ngrams.get(split, frozenset())
    prompts = _texts(frame, "prompt")
    plain = {prompt: normalise(prompt) for prompt in prompts.unique()}
    columns = {"prompt_not_held_out": prompts.map({text: key not in held_out for text, key in plain.items()})}
    if neighbours.ngram:
        apart = {
            text: key in held_out or held_out_ngrams.isdisjoint(ngrams(key, neighbours.ngram))
            for text, key in plain.items()
        }
        columns["prompt_shares_no_ngram"] = prompts.map(apart)
    return columns


def _label_share(frame: pd.DataFrame, name: str) -> dict[str, pd.Series]:
    """Unknown labels ("" and 0) count for nothing, and where all are unknown there is nothing to balance."""
    labels = frame[name]
    known = labels.notna() & ~labels.isin(["", 0])
    if not known.any():
        return {}
    return {f"{name}_share": labels.where(known).map(labels[known].value_counts(normalize=True)).astype(float)}
