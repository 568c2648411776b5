"""The experiments: their recipes, rows, measurements and published figures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.datasets.formats import FORMATS, split_dialogues
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from models.recipes.schema import Recipe

Row = Mapping[str, str]
Stage = Literal["base", "warm_start", "reward_model", "fine_tune"]

SENTENCE = re.compile(r"(?<=[.?!])\s+")
SHORTEST, LONGEST = 20, 60
"""Characters of a text that is reversed."""
LONGEST_DIALOGUE = 800
"""Characters of the longer dialogue of a pair."""


@dataclass(frozen=True)
class Experiment:
    """A published run and the recipe that reproduces it."""

    name: str
    title: str
    recipe: str
    """Name of the recipe in recipes/."""
    source: str
    """File of the data folder that the rows are drawn from."""
    measured: Literal["similarity", "answers", "reward_pairs", "policy_pairs"]
    """Kind of measurement: answers against references, or pairs by a reward model or by a policy."""
    stages: tuple[Stage, ...]
    """Stages whose model is measured, in their order."""
    published: str
    """The published figures and where they are stated."""
    strict: str
    """Name of the strict metric."""
    lenient: str = ""
    """Name of the lenient metric; empty: none."""
    kill_at: str = "store/fine_tune/*/checkpoints/round_000010"
    """Pattern in the state folder: the run that tests resuming is killed once it has a match."""
    test_rows: int = 200
    curve: str = "reward/total"
    """Metric of the last stage's steps that the page shows."""
    overrides: tuple[str, ...] = ()
    """Settings of the recipe that the experiment changes, as KEY=VALUE."""

    def load(self) -> Recipe:
        """Load the recipe with its overrides."""
        return load_recipe(find_recipe(self.recipe), self.overrides)


REVERSE = Experiment(
    name="reverse_text",
    title="Reverse a text (prime-rl's reverse-text)",
    recipe="real/smollm2_reverse_text",
    source="gsm8k_train.jsonl",
    measured="similarity",
    stages=("base", "warm_start", "fine_tune"),
    published="Qwen3-0.6B, 100 supervised steps of 32, then 20 steps of 8 x 16 at 128 tokens: mean similarity from "
    "about 0.05 to about 0.8; the project's own test asks for 0.6 "
    "(prime-rl, examples/basic/reverse-text and tests/integration/test_reverse_text.py)",
    strict="exact",
    lenient="similarity",
)
GSM8K = Experiment(
    name="gsm8k",
    title="GSM8K: supervised, then reinforcement learning",
    recipe="real/smollm2_gsm8k",
    source="gsm8k_train.jsonl",
    measured="answers",
    stages=("base", "warm_start", "fine_tune"),
    published="nanochat d20 (561M parameters): 4.55 % after supervised training, 7.58 % after one epoch of "
    "reinforcement learning (nanochat, README); SmolLM2-135M-Instruct 1.4 % (its model card)",
    strict="marked answer",
    lenient="last number",
    test_rows=600,
)
REWARD_MODEL = Experiment(
    name="hh_reward_model",
    title="HH-RLHF harmlessness: a reward model's pair accuracy",
    recipe="real/smollm2_hh_reward_model",
    source="hh_harmless_pairs.jsonl",
    measured="reward_pairs",
    stages=("reward_model",),
    published="Qwen2.5-7B with LoRA and TRL on 160,800 pairs of HH-RLHF: 50 to 71.5 % held out "
    "(usama10/qwen-7b-reward-model; not verified)",
    strict="pair accuracy",
    kill_at="store/reward_model/*/metrics.jsonl",
    curve="accuracy",
    test_rows=192,
)
DPO = Experiment(
    name="hh_dpo",
    title="HH-RLHF harmlessness: DPO's pair accuracy",
    recipe="real/smollm2_hh_dpo",
    source="hh_harmless_pairs.jsonl",
    measured="policy_pairs",
    stages=("fine_tune",),
    published="SmolLM-135M with Unsloth and TRL on other pairs, 2,757 steps of 128: 50 to 72 % held out "
    "(JaydeepR/SmolLM-135M-neuraltxt-dpo-v1; not verified)",
    strict="pair accuracy",
    kill_at="store/fine_tune/*/checkpoints/round_000020",
    test_rows=192,
    curve="policy/pair_accuracy",
    overrides=("reward_model=null",),  # the recipe fits one to show its scores; DPO does not read it
)
EXPERIMENTS = {each.name: each for each in (REVERSE, GSM8K, REWARD_MODEL, DPO)}


def write_inputs(experiment: Experiment, data: Path, folder: Path) -> tuple[Path, Path]:
    """Write the rows of an experiment as JSON Lines. Returns the files to train on and to measure on.

    Raises:
        UserError: the data folder does not have the file.
    """
    source = data / experiment.source
    if not source.is_file():
        raise UserError(f"{source}: not a file; --data names the folder with the data sets")
    rows = read_rows(source)
    train: Sequence[Row]
    test: Sequence[Row]
    if experiment.measured == "similarity":
        train, test = _reversed_rows(rows, experiment.test_rows)
    elif experiment.measured == "answers":
        train, test = rows, read_rows(data / "gsm8k_test.jsonl")[: experiment.test_rows]
    else:
        train, test = _short_pairs(rows, experiment.test_rows)
    files = (folder / "train.jsonl", folder / "test.jsonl")
    for file, some in zip(files, (train, test), strict=True):
        write_file(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in some))
    return files


def read_rows(file: Path) -> list[dict[str, str]]:
    """Read a file of JSON Lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def demonstrations_of(experiment: Experiment, rows: Sequence[Row]) -> list[Row]:
    """Convert rows to `prompt`, `completion` and `answer`, [rows]."""
    if experiment.measured == "similarity":
        return list(rows)
    convert = FORMATS["gsm8k"].convert
    return [convert({"prompt": row["question"], "answer": row["answer"]})["demonstrations"] for row in rows]


def pairs_of(rows: Iterable[Row]) -> list[tuple[str, str, str]]:
    """Split dialogues into prompt, chosen and rejected answer, [rows]."""
    return [split_dialogues(row["chosen"], row["rejected"]) for row in rows]


def _reversed_rows(rows: Sequence[Row], held_out: int) -> tuple[Sequence[Row], Sequence[Row]]:
    """Pair sentences of the questions with their reversal: 1,000 to train on, as in the published run."""
    sentences = {part: None for row in rows for part in SENTENCE.split(row["question"])}
    texts = [text for text in sentences if SHORTEST <= len(text) <= LONGEST and text.isascii()]
    Random(0).shuffle(texts)
    made = [{"prompt": text, "completion": text[::-1], "answer": text[::-1]} for text in texts]
    return made[held_out : held_out + 1000], made[:held_out]


def _short_pairs(rows: Sequence[Row], held_out: int) -> tuple[Sequence[Row], Sequence[Row]]:
    """Select pairs of short dialogues with one prompt and two answers."""
    short = [row for row in rows if max(len(row["chosen"]), len(row["rejected"])) <= LONGEST_DIALOGUE]
    kept = [row for row, pair in zip(short, pairs_of(short), strict=True) if all(pair)]
    Random(0).shuffle(kept)
    return kept[held_out:], kept[:held_out]
