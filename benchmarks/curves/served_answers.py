"""Check that a server answers as the evaluation does: greedy answers over HTTP next to those of the evaluation's code.

    rewardflow export champion exported
    rewardflow serve champion                                   # in another terminal
    python -m benchmarks.curves.served_answers exported --address http://127.0.0.1:8000

Takes problems of the validation split of `constrained_texts`, has the exported policy answer them by the code of the
evaluation, sends the same prompts to the server at temperature 0 and compares the texts, letter by letter. `--before
FOLDER` has another model answer them too, such as the base model; `--markdown FILE` writes questions and answers as a
page. The exit status is 1 if an answer differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.request import Request

from models.base.atomic_write import write_file
from models.base.http_answers import DIRECT
from models.datasets.schema import read_rows
from models.engines.engine import EngineSettings, Sampling
from models.engines.open_engine import open_engine
from models.evaluation.evaluate import evaluate
from models.evaluation.records import Completion
from models.method.problem import Problem
from models.parts.rewards.rules.constraints import ConstraintsMet
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.tokenizer import load_tokenizer

DATA = Path("data/prepared/constrained_texts")
SECONDS = 600.0
"""Time limit of a server for one answer, seconds."""


def evaluated(
    folder: Path,
    rows: Sequence[dict[str, str]],
    max_tokens: int,
    settings: EngineSettings = EngineSettings(precision="float32"),  # noqa: B008 - frozen
) -> list[Completion]:
    """Return greedy answers of a model folder to problems, [rows], as the evaluation makes and judges them."""
    codec = Codec(load_tokenizer(folder), True, ends_of_folder(folder))
    prompts = codec.prompts([row["prompt"] for row in rows])
    problems = [
        Problem(row["id"], row["prompt"], row["answer"], tokens=tuple(ids))
        for row, ids in zip(rows, prompts, strict=True)
    ]
    longest = max(map(len, prompts)) + max_tokens
    engine = open_engine(folder, settings, longest=longest, end=codec.ends, seed=0)
    try:
        made = evaluate(
            engine, codec, problems, Sampling(max_tokens=max_tokens), 0, None, verify=ConstraintsMet().right
        )
    finally:
        engine.close()
    return [record.greedy for record in made]


def served(address: str, prompt: str, max_tokens: int) -> str:
    """Return the answer of an OpenAI server to a prompt at temperature 0."""
    with DIRECT.open(f"{address}/v1/models", timeout=SECONDS) as answer:
        model = json.load(answer)["data"][0]["id"]
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": max_tokens,
    }
    request = Request(f"{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with DIRECT.open(request, timeout=SECONDS) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def differing(
    address: str, rows: Sequence[dict[str, str]], answers: Sequence[Completion], max_tokens: int
) -> list[str]:
    """Return the prompts that a server does not answer with the evaluated text."""
    return [
        row["prompt"]
        for row, answer in zip(rows, answers, strict=True)
        if served(address, row["prompt"], max_tokens) != answer.text
    ]


def as_markdown(rows: Sequence[dict[str, str]], before: Sequence[Completion], after: Sequence[Completion]) -> str:
    """Format questions with both models' answers, and whether they meet all constraints."""
    parts = []
    for row, old, new in zip(rows, before, after, strict=True):
        answers = [("before", old), ("after", new)]
        parts.append(f"> {row['prompt']}\n")
        for title, answer in answers:
            verdict = "all met" if answer.correct else "cut" if not answer.finished else "not all met"
            quoted = "\n".join(f"    {line}" for line in answer.text.splitlines())
            parts.append(f"{title} ({verdict}):\n\n{quoted}\n")
    return "\n".join(parts)


def main() -> int:
    """Compare, and print how many answers are equal. Returns 1 if one differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curves.served_answers", description=__doc__)
    parser.add_argument("folder", type=Path, help="the exported policy")
    parser.add_argument("--address", default="", help="of its server; without one nothing is compared")
    parser.add_argument("--before", type=Path, help="another model folder that answers too")
    parser.add_argument("--markdown", type=Path, help="file to write questions and answers to")
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=96)
    given = parser.parse_args()
    every = read_rows(DATA, "problems", "validation")
    rows = every[:: max(1, len(every) // given.questions)][: given.questions]
    after = evaluated(given.folder, rows, given.max_tokens)
    if given.before and given.markdown:
        write_file(given.markdown, as_markdown(rows, evaluated(given.before, rows, given.max_tokens), after))
    if not given.address:
        return 0
    others = differing(given.address, rows, after, given.max_tokens)
    print(f"{len(rows) - len(others)} of {len(rows)} served answers equal the evaluated ones")
    for prompt in others:
        print(f"differs: {prompt}")
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
