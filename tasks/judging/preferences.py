"""Preferences between the answers of both sides as a metric: of a language model that judges, or of people.

    value of a problem = mean over its comparisons of 1 (the candidate), 1/2 (equal), 0 (the champion)

The champion's value is 1 minus the candidate's, so their paired difference is within [-1, 1] and feeds the same test as
every metric. Position bias is the share of preferences for the answer that was shown first: 1/2 without bias. A judge
sees each pair in both orders; a pair in which the order decides is equal. People see one order, so their bias only
cancels if both orders are as frequent.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from models.base.errors import UserError, listed, shortened
from models.base.strict_json import JsonError, parse_json
from models.evaluation.bootstrap import bootstrap_mean
from tasks.judging.answers import id_of
from tasks.judging.measuring import Measurement, PreferenceFacts, Side

JUDGED, PEOPLE = "judge_preference", "people_preference"
"""Metrics of a judge and of people."""
TEMPLATE = """You compare two answers to a request. Judge how correct and how helpful they are. Do not prefer an \
answer because of its place or its length.

[Request]
{prompt}

[First answer]
{first}

[Second answer]
{second}

Give your reason in one or two sentences. Then end with one line, which is one of these three:
The answer is first
The answer is second
The answer is neither
"""
"""Question of a judge; `neither` means that the answers are equally good."""
_WINNERS = {"a": 0.0, "b": 1.0, "tie": 0.5}
"""Winner -> value of the candidate, which is b."""
_ORDERS = ("ab", "ba")
_MOST_UNREAD = 0.5
"""Share of answers without a verdict above which a judge cannot be used."""


@dataclass(frozen=True)
class JudgeServer:
    """A language model behind an OpenAI-compatible address, which compares answers."""

    address: str
    model: str = ""
    """Name of the model; empty: the first one of the server."""
    key_variable: str = "REWARDFLOW_JUDGE_KEY"
    """Environment variable of the server's key."""
    max_tokens: int = 512
    """Longest answer of the judge, in tokens."""


@dataclass(frozen=True)
class PairPreference:
    """One comparison of an answer of the champion with one of the candidate."""

    candidate: float
    """1: the candidate's is preferred; 1/2: equal; 0: the champion's."""
    first: float | None = None
    """The same for the answer that was shown first, as a mean over both orders; None: unknown."""
    by_order: bool = False
    """Whether the order decides: both orders prefer the same place."""
    shown: str = ""
    """`ab`: the champion's was shown first; `ba`: the candidate's; empty: both orders, or unknown."""


def by_judge(measured: Measurement, server: JudgeServer) -> Measurement:
    """Have a judge compare the answers of both sides, and add the preferences as a metric.

    Sample k of the candidate is compared with sample k of the champion, in both orders. Equal texts are not compared.

    Raises:
        UserError: a text or a prompt is missing, the server does not answer, or most of its answers have no verdict.
    """
    from models.base.http_client import NoAnswer
    from models.reward_models.judges.pairs import CompletionPair, compare
    from models.reward_models.judges.served import ServedJudge
    from models.reward_models.judges.settings import JudgeSettings

    for side in (measured.champion, measured.candidate):
        if not side.answers.has_texts:
            raise UserError(f"--judge: {side.answers.source} has scores without texts, which a judge cannot compare")
    if without := [problem.id for problem in measured.problems if not problem.prompt.strip()]:
        raise UserError(f"--judge: no prompt of {len(without):,} problems ({listed(without, 3)}); --data names them")
    texts = [
        [(new.text, old.text) for new, old in zip(of_candidate.samples, of_champion.samples, strict=False)]
        for of_candidate, of_champion in zip(measured.candidate.records, measured.champion.records, strict=True)
    ]
    pairs = [
        CompletionPair(problem.prompt, new, old, {})
        for problem, group in zip(measured.problems, texts, strict=True)
        for new, old in group
        if new != old
    ]
    settings = JudgeSettings(
        address=server.address,
        model=server.model or None,
        key_variable=server.key_variable,
        max_tokens=server.max_tokens,
        temperature=0.0,
    )
    try:
        judge = ServedJudge(settings, 0)
        compared = compare(judge, TEMPLATE, pairs) if pairs else []
    except UserError as error:
        raise UserError(f"--judge {server.address}: {str(error).split(': ', 1)[-1]}") from None
    except NoAnswer as error:
        raise UserError(f"--judge {server.address}: {error}") from None
    unread = sum(each.unread for each in compared)
    if unread > _MOST_UNREAD * max(1, 2 * len(compared)):
        example = next(shortened(answer.text, 80) for each in compared for answer in each.answers if each.unread)
        raise UserError(
            f"--judge {server.address}: {unread:,} of {2 * len(compared):,} answers have no verdict, such as "
            f"{example!r}; it must end with `The answer is first`, `second` or `neither`"
        )
    results = iter(compared)
    chosen: dict[str, list[PairPreference]] = {}
    for problem, group in zip(measured.problems, texts, strict=True):
        chosen[problem.id] = [
            _of_comparison(next(results)) if new != old else PairPreference(0.5) for new, old in group
        ]
    name = server.model or "the model"
    return _with_preferences(
        measured,
        chosen,
        JUDGED,
        f"{name} at {server.address}",
        json.dumps([JUDGED, server.address, server.model]),
        unread=sum(each.preference is None for each in compared),
    )


def by_people(measured: Measurement, file: Path) -> Measurement:
    """Add the choices of people as a metric. Problems without a choice are left out of the metric.

    Raises:
        UserError: the file cannot be read, a row is wrong, or no row is about a judged problem.
    """
    chosen, content = read_preferences(file)
    known = {problem.id for problem in measured.problems}
    others = sum(len(group) for problem, group in chosen.items() if problem not in known)
    kept = {problem: group for problem, group in chosen.items() if problem in known}
    if not kept:
        raise UserError(
            f"--preferences: {file}: no row is about a judged problem; it has {listed(list(chosen), 3)}, the problems "
            f"are {listed(sorted(known), 3)}"
        )
    made = _with_preferences(measured, kept, PEOPLE, f"people in {file}", json.dumps([PEOPLE, content]))
    notes = list(made.notes)
    if others:
        notes.append(f"{file}: {others:,} preferences about other problems were not read")
    if missing := len(known) - len(kept):
        notes.append(f"{missing:,} problems have no preference and are left out of {PEOPLE}")
    return replace(made, notes=tuple(notes))


def read_preferences(file: Path) -> tuple[dict[str, list[PairPreference]], str]:
    """Read the choices of people: JSON lines with `problem`, `winner` (a: champion, b: candidate, tie), and optionally
    `order` (ab or ba: which was shown first) and `person`.

    A later row of a person about the same problem replaces the earlier one.

    Returns:
        The comparisons by problem, and a hash of them.

    Raises:
        UserError: the file cannot be read, is empty, or a row is wrong.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"--preferences: {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"--preferences: {file}: not UTF-8") from None
    rows: dict[tuple[str, str], PairPreference] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            problem, person, preference = _row(f"{file}:{number}", line)
            rows[problem, person or f"row {number}"] = preference
    if not rows:
        raise UserError(f"--preferences: {file}: no row")
    chosen: dict[str, list[PairPreference]] = defaultdict(list)
    for (problem, _), preference in rows.items():
        chosen[problem].append(preference)
    content = sorted([problem, person, each.candidate, each.shown] for (problem, person), each in rows.items())
    return dict(chosen), hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _row(place: str, line: str) -> tuple[str, str, PairPreference]:
    try:
        row: Any = parse_json(line)
    except JsonError as error:
        raise UserError(f"{place}: not valid JSON ({error})") from None
    if not isinstance(row, dict):
        raise UserError(f"{place}: not an object with the keys problem and winner")
    for key in ("problem", "winner"):
        if key not in row:
            raise UserError(f"{place}: the key {key} is missing")
    winner, order = row["winner"], row.get("order")
    if not isinstance(winner, str) or winner not in _WINNERS:
        raise UserError(f"{place}: the winner is {shortened(winner, 40)!r}, not a (champion), b (candidate) or tie")
    if order is not None and order not in _ORDERS:
        raise UserError(f"{place}: the order is {shortened(order, 40)!r}, not ab or ba")
    person = row.get("person")
    if person is not None and not isinstance(person, str):
        raise UserError(f"{place}: the person is {shortened(person, 40)!r}, not a text")
    candidate = _WINNERS[winner]
    first = None if order is None else candidate if order == "ba" else 1.0 - candidate
    return id_of(row["problem"], place), person or "", PairPreference(candidate, first, shown=order or "")


def _of_comparison(comparison: Any) -> PairPreference:
    """Return the preference of a judge from both orders; a pair without a verdict in one of them is equal."""
    preference = comparison.preference
    if preference is None:
        return PairPreference(0.5)
    by_order = comparison.place in (0.0, 1.0)
    return PairPreference(preference, comparison.place, by_order)


def _with_preferences(
    measured: Measurement,
    chosen: Mapping[str, Sequence[PairPreference]],
    metric: str,
    source: str,
    identity: str,
    unread: int = 0,
) -> Measurement:
    """Add a metric to both sides, and the facts about its comparisons."""
    groups = [chosen.get(problem.id, ()) for problem in measured.problems]
    values = np.array([np.mean([each.candidate for each in group]) if group else np.nan for group in groups])
    every = [each for group in groups for each in group]
    placed = [[each.first for each in group if each.first is not None] for group in groups]
    shares = [sum(group) / len(group) for group in placed if group]
    shown = [each.shown for each in every if each.shown]
    facts = PreferenceFacts(
        metric=metric,
        source=source,
        identity=identity,
        comparisons=len(every),
        problems=sum(bool(group) for group in groups),
        first_place=bootstrap_mean(shares, resamples=2000) if shares else None,
        by_order=sum(each.by_order for each in every),
        unread=unread,
        candidate_first=sum(order == "ba" for order in shown) / len(shown) if shown else None,
    )
    return replace(
        measured,
        champion=_with_metric(measured.champion, metric, 1.0 - values),
        candidate=_with_metric(measured.candidate, metric, values),
        preferences=facts,
        notes=(*measured.notes, *facts.notes),
    )


def _with_metric(side: Side, name: str, values: Any) -> Side:
    return replace(side, metrics={**side.metrics, name: values})
