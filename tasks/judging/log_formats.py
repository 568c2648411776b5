"""The formats of answers that other programs write, and the conversion of their rows.

    answers     {"id", "answer" or "score"}: this project's own format, one sample a line
    lm-eval     samples_TASK_DATE.jsonl of lm-evaluation-harness with --log_samples
    TRL         completions_STEP.parquet of a trainer with log_completions
    verl        STEP.jsonl of trainer.rollout_data_dir or trainer.validation_data_dir
    prime-rl    train_rollouts.jsonl, and results.jsonl of verifiers: one rollout a line
    trace       the same files of newer releases: one message graph a line
    inspect     an evaluation log of inspect-ai in JSON

A format is recognised by the keys of the first row. Keys that are not read are ignored: these programs add their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.base.errors import UserError, listed, shortened
from models.base.strict_json import JsonError, parse_json
from tasks.judging.answers import GivenAnswer, completion_of, id_of, prompt_of, score_of, text_of

Row = Mapping[str, Any]

TEXT_KEYS = ("answer", "completion", "response")
"""Keys of the text in the own format, the first that a row has."""
SCORE = "score"
CUT = ("length", "max_tokens", "model_length")
"""Stop reasons of a text that was cut."""
TRACE_CUT = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")
"""Stop conditions of a trace that was cut."""
INSPECT_VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Grades of inspect-ai: correct, incorrect, partial, no answer."""


@dataclass(frozen=True)
class LogFormat:
    """A format of rows."""

    keys: frozenset[str]
    """Keys that a row of the format has."""
    read: Callable[[Iterable[tuple[str, Row]]], Iterator[GivenAnswer]]
    """Converts the rows of a file, each with its place."""


def _own(rows: Iterable[tuple[str, Row]]) -> Iterator[GivenAnswer]:
    for place, row in rows:
        text = next((row[key] for key in TEXT_KEYS if row.get(key) is not None), None)
        scores = {SCORE: score_of(row[SCORE], SCORE, place)} if SCORE in row else {}
        given = row.get("scores", {})
        if not isinstance(given, Mapping):
            raise UserError(f"{place}: 'scores' is {shortened(given, 40)!r}, not an object of metric: number")
        scores |= {str(name): score_of(value, name, place) for name, value in given.items()}
        if text is None and not scores:
            raise UserError(f"{place}: neither 'answer' nor 'score'; the row has {listed(sorted(row))}")
        tokens = row.get("tokens")
        if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0):
            raise UserError(f"{place}: 'tokens' is {shortened(tokens, 40)!r}, not a count")
        if not isinstance(finished := row.get("finished", True), bool):
            raise UserError(f"{place}: 'finished' is {shortened(finished, 40)!r}, not true or false")
        yield GivenAnswer(
            place=place,
            problem=id_of(row["id"], place) if "id" in row else "",
            prompt=prompt_of(row.get("prompt")),
            text=_plain(text),
            scores=scores,
            finished=finished,
            tokens=tokens,
        )


def _lm_eval(rows: Iterable[tuple[str, Row]]) -> Iterator[GivenAnswer]:
    """Convert rows of lm-eval; the rows of one document, one for each filter, become one answer."""
    by_document: dict[str, list[tuple[str, Row]]] = {}
    for place, row in rows:
        by_document.setdefault(id_of(row["doc_id"], place), []).append((place, row))
    filters = {str(row.get("filter", "none")) for of_document in by_document.values() for _, row in of_document}
    for document, of_document in by_document.items():
        scores: dict[str, float] = {}
        for place, row in of_document:
            ending = f",{row.get('filter')}" if len(filters) > 1 else ""
            for name in row.get("metrics") or ():
                if isinstance(row.get(name), bool | int | float | None) or _is_numbers(row.get(name)):
                    if name + ending in scores:
                        raise UserError(f"{place}: document {document} occurs twice; name the log of one evaluation")
                    scores[name + ending] = score_of(row.get(name), name, place)
        place, row = of_document[0]
        for text in _responses(row.get("resps")) or [None]:
            yield GivenAnswer(
                place=place,
                problem=document,
                prompt=_lm_eval_prompt(row.get("arguments")),
                expected=str(row.get("target", "")),
                text=text,
                scores=scores,
            )


def _trl(rows: Iterable[tuple[str, Row]]) -> Iterator[GivenAnswer]:
    for place, row in rows:
        rewards = {
            name: score_of(value, name, place)
            for name, value in row.items()
            if name not in ("step", "advantage") and (value is None or isinstance(value, bool | int | float))
        }
        yield GivenAnswer(
            place=place,
            prompt=prompt_of(row["prompt"]),
            text=completion_of(row["completion"]),
            scores=rewards,
        )


def _verl(rows: Iterable[tuple[str, Row]]) -> Iterator[GivenAnswer]:
    for place, row in rows:
        others = {
            name: score_of(value, name, place)
            for name, value in row.items()
            if name not in ("step", SCORE, "input", "output", "gts") and isinstance(value, bool | int | float)
        }
        expected = row.get("gts")
        yield GivenAnswer(
            place=place,
            prompt=prompt_of(row["input"]),
            expected=str(expected) if isinstance(expected, str | int | float) else "",
            text=completion_of(row["output"]),
            scores={SCORE: score_of(row[SCORE], SCORE, place), **others},
        )


def _prime(rows: Iterable[tuple[str, Row]]) -> Iterator[GivenAnswer]:
    for place, row in rows:
        tokens = _object(row.get("token_usage")).get("output_tokens")
        yield GivenAnswer(
            place=place,
            problem=id_of(row["example_id"], place),
            prompt=prompt_of(row.get("prompt")),
            expected=str(row.get("answer") or ""),
            text=completion_of(row.get("completion")),
            scores={
                "reward": score_of(row["reward"], "reward", place),
                **_numbers(row.get("metrics"), place),
            },
            finished=not row.get("is_truncated", False),
            tokens=int(tokens) if isinstance(tokens, int | float) else None,
        )


def _trace(rows: Iterable[tuple[str, Row]]) -> Iterator[GivenAnswer]:
    for place, row in rows:
        task, nodes, rewards = row["task"], row["nodes"], row["rewards"]
        if not isinstance(task, Mapping) or not isinstance(nodes, Sequence) or not isinstance(rewards, Mapping):
            raise UserError(f"{place}: not a trace of verifiers (task, nodes and rewards)")
        data = _object(task.get("data"))
        written = [
            node["message"] for node in nodes if node.get("sampled") and node["message"].get("role") == "assistant"
        ]
        weighted = [
            score_of(reward.get("score"), name, place) * float(reward.get("weight", 1.0))
            for name, reward in rewards.items()
            if isinstance(reward, Mapping)
        ]
        calls = [call for call in row.get("calls") or () if isinstance(call, Mapping) and not call.get("error")]
        cut = row.get("stop_condition") in TRACE_CUT or bool(calls and calls[-1].get("finish_reason") in CUT)
        yield GivenAnswer(
            place=place,
            problem=id_of(task.get("key") or task.get("hash") or data.get("name") or data.get("idx"), place),
            prompt=prompt_of(data.get("prompt")),
            expected=str(data.get("answer") or ""),
            text=row.get("root_reply") or (text_of(written[-1].get("content")) if written else None),
            scores={
                "reward": sum(weighted) if weighted else float("nan"),
                **_numbers(row.get("metrics"), place),
            },
            finished=not cut,
        )


def read_inspect(file: str, log: Row) -> Iterator[GivenAnswer]:
    """Convert a log of inspect-ai.

    Args:
        file: name of the file, for messages.
        log: its content.

    Raises:
        UserError: it has no samples, or a sample has another form.
    """
    samples = log.get("samples")
    if not isinstance(samples, Sequence) or not samples:
        raise UserError(f"{file}: the log has no samples (status {log.get('status')}); log them with --log-samples")
    for number, sample in enumerate(samples, start=1):
        place = f"{file}, sample {number}"
        if not isinstance(sample, Mapping) or "id" not in sample:
            raise UserError(f"{place}: not a sample of inspect-ai")
        output = _object(sample.get("output"))
        choice = _object((output.get("choices") or [{}])[0])
        message = _object(choice.get("message"))
        tokens = _object(output.get("usage")).get("output_tokens")
        target = sample.get("target")
        yield GivenAnswer(
            place=place,
            problem=id_of(sample["id"], place),
            prompt=prompt_of(sample.get("input")),
            expected=str(target) if isinstance(target, str | int | float) else "",
            text=output.get("completion") or text_of(message.get("content")),
            scores=_inspect_scores(sample.get("scores"), place),
            finished=choice.get("stop_reason") not in CUT,
            tokens=int(tokens) if isinstance(tokens, int | float) else None,
        )


LINE_FORMATS: Mapping[str, LogFormat] = {
    "lm-eval": LogFormat(frozenset({"doc_id", "filtered_resps"}), _lm_eval),
    "trace": LogFormat(frozenset({"task", "nodes", "rewards"}), _trace),
    "prime-rl": LogFormat(frozenset({"example_id", "reward"}), _prime),
    "TRL": LogFormat(frozenset({"step", "prompt", "completion", "advantage"}), _trl),
    "verl": LogFormat(frozenset({"input", "output", SCORE}), _verl),
    "answers": LogFormat(frozenset(), _own),
}
"""Formats of one row a line, in the order in which they are tried."""


def recognised(place: str, row: Row) -> str:
    """Return the name of the format of a first row.

    Raises:
        UserError: it is none of the known ones.
    """
    for name, form in LINE_FORMATS.items():
        if form.keys and form.keys <= row.keys():
            return name
    if {"id", "prompt"} & row.keys() and {*TEXT_KEYS, SCORE, "scores"} & row.keys():
        return "answers"
    raise UserError(
        f"{place}: no known format of answers; the row has {listed(sorted(map(str, row)))}. The own format has 'id' "
        "(or 'prompt') and 'answer' or 'score'; logs of lm-eval, TRL, verl, prime-rl and inspect are read too"
    )


def _object(value: Any) -> Row:
    """Return a JSON object; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def _numbers(metrics: Any, place: str) -> dict[str, float]:
    return {str(name): score_of(value, str(name), place) for name, value in _object(metrics).items()}


def _plain(text: Any) -> str | None:
    """Return a text of the own format: a number as its text, messages as the last one of the assistant."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return str(text)
    return completion_of(text)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, bool | int | float) for each in value)


def _responses(responses: Any) -> list[str | None]:
    """Return the texts that a request got, one for each repeat; empty for log-likelihoods."""
    of_request = responses[0] if isinstance(responses, list) and len(responses) == 1 else None
    texts = of_request if isinstance(of_request, list) else []
    return list(texts) if all(isinstance(text, str) for text in texts) else []


def _lm_eval_prompt(arguments: Any) -> str:
    """Return the prompt of lm-eval's first request: plain, or the messages that it writes as JSON."""
    text = _object(_object(arguments).get("gen_args_0")).get("arg_0")
    if isinstance(text, str) and text.startswith("[{"):
        try:
            return prompt_of(parse_json(text)) or text
        except JsonError:
            return text
    return prompt_of(text)


def _inspect_scores(scores: Any, place: str) -> dict[str, float]:
    """Return the scores of a sample by scorer, or by SCORER.NAME if it has several; texts are left out."""
    values: dict[str, float] = {}
    for scorer, score in _object(scores).items():
        value = _object(score).get("value")
        entries = {f"{scorer}.{name}": each for name, each in value.items()} if isinstance(value, Mapping) else None
        for name, each in (entries or {str(scorer): value}).items():
            if isinstance(each, str) and each in INSPECT_VALUES:
                values[name] = INSPECT_VALUES[each]
            elif not isinstance(each, str):
                values[name] = score_of(each, name, place)
    return values
