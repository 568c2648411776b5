"""Two tiny models, task files of a user's own, and the interpreters that have the harnesses."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from models.engines.engine import EngineSettings
from models.policies.aspects import UseSettings
from models.recipes.suites import HarnessName
from tasks.harness.suite import VARIABLES
from tests.support.real_models import save_tiny_qwen

FACTS = """\
task: facts
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}\\nAnswer:"
doc_to_choice: choices
doc_to_target: label
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
"""
GSM8K = """\
task: gsm8k_local
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
output_type: generate_until
test_split: test
fewshot_split: test
num_fewshot: 1
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    regexes_to_ignore: [",", "\\\\$", "(?s).*#### "]
generation_kwargs: {{until: ["Question:", "</s>"], do_sample: false}}
filter_list:
  - name: strict-match
    filter: [{{function: regex, regex_pattern: "#### (\\\\-?[0-9.,]+)"}}, {{function: take_first}}]
  - name: flexible-extract
    filter:
      - {{function: regex, group_select: -1, regex_pattern: "(-?[$0-9.,]{{2,}})|(-?[0-9]+)"}}
      - {{function: take_first}}
"""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write two random models of the same shape, whose next-token distributions are far from uniform."""
    folders = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        folder = save_tiny_qwen(tmp_path_factory.mktemp("models") / str(seed))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim >= 2:
                    parameter.mul_(6.0)
        model.save_pretrained(folder)
        folders.append(folder)
    return folders[0], folders[1]


@pytest.fixture
def task_folder(tmp_path: Path) -> Path:
    """Write a multiple-choice task with 16 questions."""
    rows = [
        {"question": f"What is {n} plus {n + 3}?", "choices": [str(2 * n + 3), str(n), "seven", "9 1"], "label": n % 4}
        for n in range(16)
    ]
    folder = tmp_path / "tasks"
    folder.mkdir()
    (tmp_path / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "facts.yaml").write_text(FACTS.format(data=tmp_path / "facts.jsonl"))
    return folder


@pytest.fixture
def gsm8k_folder(task_folder: Path, shared_data: Path) -> Path:
    """Add GSM8K with the real problems to the task files."""
    (task_folder / "gsm8k.yaml").write_text(GSM8K.format(data=shared_data / "gsm8k_test.jsonl"))
    return task_folder


def sections(chat: bool = False) -> Any:
    """Return the sections of a recipe that an evaluation on a suite reads."""
    use = UseSettings(chat=chat, system=None, trust_remote_code=False, room=None)
    return SimpleNamespace(policy=use, engine=EngineSettings(name="transformers"))


def interpreter(harness: HarnessName) -> str:
    """Return the interpreter that has a harness. Skip the test if none is named."""
    named = os.environ.get(VARIABLES[harness], "")
    if not Path(named).is_file():
        pytest.skip(f"no environment of {harness} (docs/harness.md): {VARIABLES[harness]} names its interpreter")
    return named
