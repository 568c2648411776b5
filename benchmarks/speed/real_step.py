"""A whole GRPO step on a real pretrained model: this project's `run_loop` against TRL's GRPOTrainer.

Two rows: seconds of a step, and the most memory that a side's process ever held, loading and all steps included.

Both sides load one folder with the weights of SmolLM2-135M-Instruct, sample for the same chat prompts (from the task
set `constrained_texts`), and take one update of AdamW on all weights a step. The folder names a reserved token as its
end, so that every completion has exactly the given length on both sides. The sides' settings are those of
`benchmarks.speed.grpo_step`; each side is measured at its fastest, one after the other, alone on the machine. The
details give the shares of the measured matrix peak that generation and the update reach, from the operations that must
be done (`models.training.flops`).

The model must be on this machine: `rewardflow base add smollm2-135m-instruct`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from benchmarks.shared import trl_side
from benchmarks.shared.alternate import Beat, Made, Stepper, StepperProcess, alternate, fastest_alone
from benchmarks.shared.rows import Row, compare, unmeasured
from benchmarks.shared.settings import Settings, has_trl
from benchmarks.speed.grpo_step import DISTINCT, ENGINES, GrpoStepShape, our_side, their_side
from models.base.errors import UserError
from models.datasets.params import checked, read_section
from models.policies.base_models.store import folder_of
from models.task_sets.constrained_texts import ConstrainedTextsSettings
from models.training.flops import Group, forward_flops, shapes_of
from models.training.peak import matmul_peak, peak_memory

BASE = "smollm2-135m-instruct"
SHAPE = GrpoStepShape(prompt=96, completion=64, group=8, prompts=8, at_least=2.0)
"""`prompt` is the most tokens of a prompt; instructions that are longer are left out."""
NEVER_DRAWN = "<reponame>"
"""A token of the vocabulary that the model was not trained to write in an answer: the end token of both sides."""
TOKEN_BUDGET = 4096
"""Most tokens of a packed row on our side: the setting of the recipes for this model. TRL tries its own batch sizes."""
PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure seconds and memory of a step; two rows, or one with the reason if there are none."""
    shape = SHAPE if not settings.quick else GrpoStepShape(prompt=96, completion=4, group=2, prompts=2, at_least=2.0)
    what = f"GRPO step of {BASE}, prompt {shape.prompt}, completion {shape.completion}, {shape.prompts} x {shape.group}"
    try:
        base = folder_of(BASE)
    except UserError as error:
        return [unmeasured(what, "s", str(error), shape.at_least)]
    with tempfile.TemporaryDirectory() as place:
        folder = endless(base, Path(place) / "model")
        prompts = prompts_of(folder, shape.prompt)
        ways = list(ENGINES.items())[: 1 if settings.quick else 2]
        makers: dict[str, dict[str, Callable[[], StepperProcess]]] = {
            "ours": {
                way: partial(StepperProcess, partial(our_stepper, folder, prompts, shape, engine))
                for way, engine in ways
            }
        }
        if has_trl():
            makers["peer"] = {
                way: partial(StepperProcess, partial(their_stepper, folder, prompts, shape, given))
                for way, given in trl_side.settings_tried(shape.group * shape.prompts, quick=settings.quick).items()
            }
        seconds: dict[str, list[float]] = {}
        reports: dict[str, dict[str, Any]] = {}
        for side, candidates in makers.items():  # one after the other: both do not fit into 24 GiB of memory
            stepper, tried = fastest_alone(candidates)
            seconds |= alternate({side: stepper}, warm=settings.warm, repeats=settings.samples)
            reports[side] = stepper.stop() | tried
        rounds = reports["ours"].pop("rounds")[-settings.samples :]
        split = {
            part: median(step[part] for step in rounds) for part in rounds[0] if part.startswith(("seconds/", "speed/"))
        }
        share = generation_share(folder, prompts, shape, split["seconds/generate"], reports["ours"]["autocast"])
    against, short = "TRL GRPOTrainer", "" if has_trl() else "TRL is not installed"
    details = {"split": split, "generation_share_of_peak": share, **reports}
    return [
        compare(
            what, seconds["ours"], seconds.get("peer"), "s", shape.at_least,
            smaller_is_better=True, short=short, against=against, details=details,
        ),
        compare(
            f"peak memory of the process, {what}", [reports["ours"]["peak_gib"]],
            [reports["peer"]["peak_gib"]] if "peer" in reports else None, "GiB", 2.0,
            smaller_is_better=True, short=short, against=against, wanted="half of it",
        ),
    ]  # fmt: skip


def endless(base: Path, folder: Path) -> Path:
    """Copy a model folder and replace its end token by one that the model does not draw. Returns the copy."""
    shutil.copytree(base, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.eos_token = NEVER_DRAWN
    tokenizer.save_pretrained(folder)
    for file in ("config.json", "generation_config.json"):
        facts = json.loads((folder / file).read_text(encoding="utf-8"))
        facts["eos_token_id"] = tokenizer.eos_token_id
        (folder / file).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return folder


def prompts_of(folder: Path, longest: int) -> list[list[int]]:
    """Draw instructions of at most `longest` tokens as chat prompts, [DISTINCT][tokens]."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    section = read_section(PARAMS, "constrained_texts")
    tasks = checked(ConstrainedTextsSettings, section, f"{PARAMS}: constrained_texts")
    random = Random(0)
    rows: list[list[int]] = []
    while len(rows) < DISTINCT:
        message = [{"role": "user", "content": tasks.draw(random).prompt}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text)["input_ids"]
        if len(ids) <= longest and write(tokenizer, [ids]) == [text]:
            rows.append(ids)
    return rows


def write(tokenizer: Any, prompts: Sequence[Sequence[int]]) -> list[str]:
    """Write prompts as texts, special tokens included."""
    return [tokenizer.decode(ids, clean_up_tokenization_spaces=False) for ids in prompts]


def our_stepper(folder: Path, prompts: list[list[int]], shape: GrpoStepShape, engine: Any) -> Made:
    """Make our side, in its own process."""
    report: dict[str, Any] = {"rounds": []}
    return Stepper(_with_peak(our_side(folder, prompts, shape, engine, report, write, TOKEN_BUDGET), report)), report


def their_stepper(folder: Path, prompts: list[list[int]], shape: GrpoStepShape, given: dict[str, Any]) -> Made:
    """Make TRL's side with a Trainer's settings, in its own process."""
    report: dict[str, Any] = {}
    return Stepper(_with_peak(their_side(folder, prompts, shape, given, write), report)), report


def _with_peak(run: Any, report: dict[str, Any]) -> Any:
    """Have a side's run note the process's peak memory after every step."""

    def watched(beat: Beat) -> None:
        def noted() -> None:
            report["peak_gib"] = peak_memory(torch.device("cpu"))
            beat()

        run(noted)

    return watched


def generation_share(
    folder: Path, prompts: list[list[int]], shape: GrpoStepShape, seconds: float, autocast: str
) -> float:
    """Compute the share of the measured matrix peak that generation reaches; every prompt is counted once."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    dtype = torch.bfloat16 if "bfloat16" in autocast else torch.float32
    lengths = [len(ids) for ids in prompts]
    groups = [Group(sum(lengths) // len(lengths), (shape.completion,) * shape.group)] * shape.prompts
    return forward_flops(shapes_of(model), groups) / seconds / matmul_peak(torch.device("cpu"), dtype, 1.0)
