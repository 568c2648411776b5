"""Computed columns for the checks that a suite cannot express on one raw column: a boolean or a number for each row.

Great Expectations then checks these columns, in addition to the raw ones, with `data/expectations/`:

    id_is_unique            no other row of the whole data set has this id
    tokens                  tokens of the longest sequence that the row makes
    problem_is_first        no earlier row of the file is the same problem   (problems of the gate)
    answer_parses           the verifier can read the expected answer         (only if the file has answers)
    answer_is_accepted      the verifier accepts the expected answer itself    (only if the file has answers)
    answer_is_short         it is not a whole sentence, if wording counts      (only if the file has answers)
    completion_answers      the completion states an answer it can read, or   (only if the file has answers)
                            the verifier reads answers that are not marked
    chosen_differs          chosen and rejected are not the same text
    chosen_is_longer        1 if the chosen text is the longer one, 0 if it is the shorter, one half for a tie
    prompt_not_held_out     no split that is held out further has the prompt (train: validation, gate;
                            validation: gate)
    prompt_shares_no_ngram  nor any n-gram of it                              (settings.ngram > 0)
    images_not_held_out     nor an image that looks like one of its images     (settings.image_distance is set)
    image_count             number of images of the prompt                     (only if the data set has images)
    image_edge              its smallest width or height, in pixels; without an image as large as any
    level_share flaw_share  share of the rows with this row's label among those with one (only if labels are known)

A column that has no meaning for a file is left out, and so are its checks. A null in a text column counts as "" here:
the suite itself checks for nulls. Pure functions of data frames; nothing is changed in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from models.base.images import content_of, images_in
from models.base.pictures import MOST_PIXELS, perceptual_hash, size_of
from models.datasets.hashes import NOTHING, Hashes, hashes_of, repeated, within
from models.datasets.normalise import ngrams, normalise
from models.datasets.repeated_problems import is_first
from models.datasets.schema import SPLITS

COMPUTED = {
    "id_is_unique": "id",
    "tokens": "prompt",
    "problem_is_first": "prompt",
    "answer_parses": "answer",
    "answer_is_accepted": "answer",
    "answer_is_short": "answer",
    "completion_answers": "completion",
    "chosen_differs": "rejected",
    "chosen_is_longer": "chosen",
    "prompt_not_held_out": "prompt",
    "prompt_shares_no_ngram": "prompt",
    "images_not_held_out": "prompt",
    "image_count": "prompt",
    "image_edge": "prompt",
    "level_share": "level",
    "flaw_share": "flaw",
}
"""Every column that `computed_columns` may add, and the column that a user must look at if it fails."""

CountTokens = Callable[[Sequence[str]], list[int]]
ParseAnswer = Callable[[str], str | None]
CheckAnswers = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Sequence[bool]]]
"""Rows with answers -> verdicts of the recipe's verifier by computed column, and `answer_is_marked`: whether a
completion must mark the row's answer."""


@dataclass(frozen=True)
class Neighbours:
    """Data outside its own file with which a row is compared."""

    repeated_ids: frozenset[str]
    """Ids that more than one row of the data set has."""
    held_out: Mapping[str, Hashes]
    """Split -> hashes of the prompts of the splits held out further, of every kind, after `normalise`; ascending."""
    held_out_ngrams: Mapping[str, Hashes]
    """Split -> hashes of their n-grams; empty if `ngram` is 0."""
    ngram: int
    """Words of an n-gram; 0 if only whole prompts are compared."""
    held_out_images: Mapping[str, Hashes] = field(default_factory=dict)
    """Split -> perceptual hashes of the images of the splits held out further; empty if images are not compared."""
    image_distance: int | None = None
    """Bits in which the hashes of images that look alike may differ; None if images are not compared."""


@dataclass(frozen=True)
class Facts:
    """Data of its own file with which a row is compared."""

    has_answers: bool
    """Whether any row has an answer."""
    labels: Mapping[str, Mapping[Any, int]]
    """Column of labels -> label -> number of rows with it. Unknown labels ("" and 0) are not counted."""
    first_of_repeated: Mapping[int, str] | None = None
    """See `models.datasets.repeated_problems`; None if problems may be repeated."""
    has_images: bool = False
    """Whether prompts may refer to images."""


def neighbours_of(
    frames: Iterable[tuple[str, pd.DataFrame]], ngram: int, image_distance: int | None = None
) -> Neighbours:
    """Collect the data with which rows are compared. Time is linear in the words of the held-out prompts; a row takes
    eight bytes for its id, a held-out prompt eight for itself and for each of its n-grams.

    Args:
        frames: split ("train", "validation" or "gate") and rows of every file of the data set, in pieces; with the
            columns `id` and `prompt`. Iterated a second time if ids may be repeated.
        ngram: words of the n-grams to compare; 0 for whole prompts only.
        image_distance: bits in which the hashes of images that look alike may differ; None: images are not compared.
    """
    ids: list[Hashes] = []
    prompts: dict[str, list[Hashes]] = {split: [] for split in SPLITS}
    grams: dict[str, list[Hashes]] = {split: [] for split in SPLITS}
    images: dict[str, list[Hashes]] = {split: [] for split in SPLITS}
    for split, frame in frames:
        ids.append(hashes_of([text for text in _texts(frame, "id") if text.strip()]))
        if split != "train":
            plain = [text for prompt in _texts(frame, "prompt").unique() if (text := normalise(prompt))]
            prompts[split].append(np.unique(hashes_of(plain)))
            if ngram:
                held = [gram for text in plain for gram in ngrams(text, ngram)]
                grams[split].append(np.unique(hashes_of(held)))
            if image_distance is not None:
                names = {name for prompt in _texts(frame, "prompt").unique() for name in images_in(prompt)}
                images[split].append(np.array([_looks(name) for name in sorted(names)], dtype=np.uint64))
    suspect = repeated(ids)
    counts: Counter[str] = Counter()
    if len(suspect):
        for _, frame in frames:
            texts = [text for text in _texts(frame, "id") if text.strip()]
            counts.update(text for text, seen in zip(texts, within(hashes_of(texts), suspect), strict=True) if seen)
    return Neighbours(
        repeated_ids=frozenset(name for name, count in counts.items() if count > 1),
        held_out={split: _further(split, prompts) for split in SPLITS},
        held_out_ngrams={split: _further(split, grams) for split in SPLITS},
        ngram=ngram,
        held_out_images={split: _further(split, images) for split in SPLITS},
        image_distance=image_distance,
    )


def facts_of(frames: Iterable[pd.DataFrame], *, has_images: bool = False) -> Facts:
    """Collect the facts of a file from its rows in pieces; the columns `answer`, `level` and `flaw` are read.

    Args:
        has_images: whether prompts may refer to images.
    """
    has_answers = False
    labels: dict[str, Counter[Any]] = {}
    for frame in frames:
        has_answers = has_answers or ("answer" in frame and bool(_texts(frame, "answer").str.strip().ne("").any()))
        for name in ("level", "flaw"):
            if name in frame:
                known = frame[name][_is_label(frame[name])]
                labels.setdefault(name, Counter()).update(known.value_counts().to_dict())
    return Facts(has_answers, labels, has_images=has_images)


def computed_columns(
    split: str,
    frame: pd.DataFrame,
    neighbours: Neighbours,
    facts: Facts,
    count_tokens: CountTokens,
    parse_answer: ParseAnswer,
    count_prompts: CountTokens | None = None,
    check_answers: CheckAnswers | None = None,
) -> pd.DataFrame:
    """Compute the additional columns of some rows of a file, [rows, some of `COMPUTED`], in the order of `frame` and
    with its index; the set of columns depends on the file and not on the rows.

    Args:
        split: "train", "validation" or "gate".
        frame: the rows, with the columns of their kind.
        neighbours: result of `neighbours_of` for the whole data set.
        facts: result of `facts_of` for the file.
        count_tokens: returns the tokens of each text. Called once for each column, with the distinct texts.
        parse_answer: returns the answer that a completion states, or None if it states none that can be read.
        count_prompts: returns the tokens of each prompt with the text that the recipe adds; None: as for any text.
        check_answers: returns the verdicts of the verifier on the expected answers; None: not called.
    """
    columns: dict[str, pd.Series] = {"id_is_unique": ~_texts(frame, "id").isin(neighbours.repeated_ids)}
    columns["tokens"] = _tokens(frame, count_tokens, count_prompts or count_tokens)
    if facts.first_of_repeated is not None:
        columns["problem_is_first"] = is_first(frame, facts.first_of_repeated)
    if facts.has_answers:
        columns |= _answers(frame, parse_answer)
        if check_answers is not None:
            named = [name for name in ("id", "prompt", "answer", "tests", "entry_point") if name in frame]
            read = pd.DataFrame({name: _texts(frame, name) for name in named})
            verdicts = dict(check_answers(read.to_dict("records")))
            marked = pd.Series(list(verdicts.pop("answer_is_marked")), index=frame.index, dtype=bool)
            if "completion_answers" in columns:
                columns["completion_answers"] |= ~marked
            columns |= {name: pd.Series(list(held), index=frame.index) for name, held in verdicts.items()}
    if "chosen" in frame:
        chosen, rejected = _texts(frame, "chosen"), _texts(frame, "rejected")
        columns["chosen_differs"] = (chosen.str.strip() != rejected.str.strip()) | (chosen.str.strip() == "")
        columns["chosen_is_longer"] = (np.sign(chosen.str.len() - rejected.str.len()) + 1) / 2
    if facts.has_images:
        columns |= _images(frame)
    if split != "gate":
        columns |= _leakage(frame, neighbours, split)
        if facts.has_images and neighbours.image_distance is not None:
            columns["images_not_held_out"] = _images_apart(frame, neighbours, split)
    for name, counts in facts.labels.items():
        if total := sum(counts.values()):
            shares = {label: count / total for label, count in counts.items()}
            columns[f"{name}_share"] = frame[name].where(_is_label(frame[name])).map(shares).astype(float)
    return pd.DataFrame(columns, index=frame.index)


def _is_label(labels: pd.Series) -> pd.Series:
    return labels.notna() & ~labels.isin(["", 0])


def _texts(frame: pd.DataFrame, name: str) -> pd.Series:
    return frame[name].fillna("").astype(str)


def _tokens(frame: pd.DataFrame, count_tokens: CountTokens, count_prompts: CountTokens) -> pd.Series:
    def count(name: str, tokens: CountTokens = count_tokens) -> pd.Series:
        codes, texts = pd.factorize(_texts(frame, name))
        return pd.Series(np.asarray(tokens(list(texts)), dtype=np.int64)[codes], index=frame.index)

    longest = count("prompt", count_prompts)
    if "completion" in frame:
        longest += count("completion")
    if "chosen" in frame:
        longest += np.maximum(count("chosen"), count("rejected"))
    return longest


def _answers(frame: pd.DataFrame, parse_answer: ParseAnswer) -> dict[str, pd.Series]:
    """Check the expected answers, which may be bare (`18`) or in their marker (`#### 18`).

    The verifier can read a bare answer if a completion that ends in it, with the marker, is read back as exactly that
    answer; a text of several lines is not. A problem with unit tests needs no answer, and its own may be a whole
    program.
    """
    answers = _texts(frame, "answer").str.strip()
    fits = {text: parse_answer(text) is not None or parse_answer(f"#### {text}") == text for text in answers.unique()}
    tested = _texts(frame, "tests").str.strip().ne("") if "tests" in frame else pd.Series(False, index=frame.index)
    columns = {"answer_parses": answers.map(fits) & answers.ne("") | tested}
    if "completion" in frame:
        completions = _texts(frame, "completion")
        stated = {text: not text.strip() or parse_answer(text) is not None for text in completions.unique()}
        columns["completion_answers"] = completions.map(stated) | answers.eq("")
    return columns


def _images(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Measure the images that the prompts refer to."""
    named = _texts(frame, "prompt").map(images_in)
    distinct = sorted({name for names in named for name in names})
    edges = {name: min(size_of(content_of(name), f"image {name}")) for name in distinct}
    smallest = [min((edges[name] for name in names), default=MOST_PIXELS) for names in named]
    return {"image_count": named.map(len), "image_edge": pd.Series(smallest, index=frame.index)}


@lru_cache(maxsize=1 << 16)
def _looks(name: str) -> int:
    return perceptual_hash(content_of(name), f"image {name}")


def _images_apart(frame: pd.DataFrame, neighbours: Neighbours, split: str) -> pd.Series:
    """Check that no image of a prompt looks like one of the splits held out further."""
    held_out, distance = neighbours.held_out_images.get(split, NOTHING), neighbours.image_distance
    named = _texts(frame, "prompt").map(images_in)
    distinct = sorted({name for names in named for name in names})
    alike = {name: bool((np.bitwise_count(held_out ^ np.uint64(_looks(name))) <= distance).any()) for name in distinct}
    return named.map(lambda names: not any(alike[name] for name in names)).astype(bool)


def _further(split: str, of: Mapping[str, Sequence[Hashes]]) -> Hashes:
    """Return the hashes of the splits that are held out further than `split`."""
    later = [hashes for name in SPLITS[SPLITS.index(split) + 1 :] for hashes in of[name]] if split in SPLITS else []
    return np.unique(np.concatenate([NOTHING, *later]))


def _leakage(frame: pd.DataFrame, neighbours: Neighbours, split: str) -> dict[str, pd.Series]:
    """Check the prompts for leakage. A whole prompt in the held-out data is not reported for its n-grams too."""
    codes, texts = pd.factorize(_texts(frame, "prompt"))
    plain = [normalise(text) for text in texts]
    whole = within(hashes_of(plain), neighbours.held_out.get(split, NOTHING)) & np.array([text != "" for text in plain])
    columns = {"prompt_not_held_out": pd.Series(~whole[codes], index=frame.index)}
    if neighbours.ngram:
        grams = [list(ngrams(text, neighbours.ngram)) for text in plain]
        of = np.repeat(np.arange(len(grams)), [len(held) for held in grams])
        shared = within(
            hashes_of([gram for held in grams for gram in held]), neighbours.held_out_ngrams.get(split, NOTHING)
        )
        apart = whole | (np.bincount(of[shared], minlength=len(grams)) == 0)
        columns["prompt_shares_no_ngram"] = pd.Series(apart[codes], index=frame.index)
    return columns
