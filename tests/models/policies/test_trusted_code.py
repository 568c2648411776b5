"""Code that a model ships: it runs wherever the model is opened if the recipe trusts it, and is refused otherwise."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.engines.engine import EngineSettings, Sampling
from models.engines.open_engine import open_engine
from models.policies.build import open_policy
from models.policies.folder import save_model_folder
from models.recipes.files import require_files
from models.recipes.load import load_recipe
from models.reward_models.model import load_reward_model, reward_model_from_policy
from models.reward_models.scoring import score_all
from models.text.tokenizer import load_tokenizer
from tests.support.tiny_models import SEQUENCES, tiny_policy, word_tokenizer

CONFIG = """
from transformers import Qwen3Config
class OwnConfig(Qwen3Config):
    model_type = "own_qwen3"
"""
MODEL = """
from torch import nn
from transformers import Qwen3ForCausalLM, Qwen3Model, Qwen3PreTrainedModel
from .configuration_own import OwnConfig
class OwnForCausalLM(Qwen3ForCausalLM):
    config_class = OwnConfig
class OwnForSequenceClassification(Qwen3PreTrainedModel):
    config_class = OwnConfig
    base_model_prefix = "model"
    def __init__(self, config):
        super().__init__(config)
        self.model = Qwen3Model(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        self.post_init()
"""
TOKENIZER = """
from transformers import PreTrainedTokenizerFast
class OwnTokenizer(PreTrainedTokenizerFast):
    own = True
"""
MODELS = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
CLASSIFIER = {"AutoModelForSequenceClassification": "modeling_own.OwnForSequenceClassification"}


def shipping(folder: Path, named: Mapping[str, str]) -> Path:
    """Make a model folder whose config, weights and tokenizer are opened by code in the folder."""
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), folder)
    (folder / "configuration_own.py").write_text(CONFIG)
    (folder / "modeling_own.py").write_text(MODEL)
    (folder / "tokenization_own.py").write_text(TOKENIZER)
    for file, more in {
        "config.json": {"model_type": "own_qwen3", "auto_map": named},
        "tokenizer_config.json": {
            "tokenizer_class": "OwnTokenizer",
            "auto_map": {"AutoTokenizer": [None, "tokenization_own.OwnTokenizer"]},
        },
    }.items():
        said = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(said | more))
    return folder


def test_trusted_code_reaches_tokenizer_policy_reward_model_and_engine_of_what_is_exported(tmp_path: Path) -> None:
    base = shipping(tmp_path / "base", MODELS | CLASSIFIER)
    policy, tokenizer = open_policy(base, trust_remote_code=True)
    assert type(policy).__name__ == "OwnForCausalLM" and tokenizer.own
    save_model_folder(policy, tokenizer, tmp_path / "policy")  # as warm start and fine-tuning save it
    assert load_tokenizer(tmp_path / "policy", trust_remote_code=True).own
    judge = reward_model_from_policy(tmp_path / "policy", seed=0, trust_remote_code=True)
    assert type(judge).__name__ == "OwnForSequenceClassification"
    save_model_folder(judge, tokenizer, tmp_path / "judge")
    loaded = load_reward_model(tmp_path / "judge", trust_remote_code=True)
    assert torch.equal(score_all(loaded, SEQUENCES), score_all(judge, SEQUENCES))
    engine = open_engine(
        tmp_path / "policy",
        EngineSettings(name="transformers", precision="float32"),
        longest=16,
        end=1,
        seed=0,
        trust_remote_code=True,
    )
    assert len(engine.generate([[3]], Sampling(max_tokens=2), seed=0)) == 1


@pytest.mark.parametrize(
    "opened", [open_policy, load_tokenizer, load_reward_model, lambda folder: reward_model_from_policy(folder, seed=0)]
)
def test_code_that_nobody_trusts_is_not_run(opened: Callable[..., Any], tmp_path: Path) -> None:
    folder = shipping(tmp_path / "base", MODELS | CLASSIFIER)
    for name in ("configuration_own.py", "modeling_own.py", "tokenization_own.py"):
        (folder / name).write_text("raise SystemExit('the code ran')")
    if opened is load_reward_model:
        said = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(said | {"architectures": ["OwnForSequenceClassification"]}))
    with pytest.raises(UserError, match="trust_remote_code"):
        opened(folder)


def test_code_without_a_sequence_classifier_is_refused_before_anything_starts(tmp_path: Path) -> None:
    base = shipping(tmp_path / "base", MODELS)
    line = "has no sequence classifier .* set reward_model: null"
    with pytest.raises(UserError, match=line):
        reward_model_from_policy(base, seed=0, trust_remote_code=True)
    settings = [f"policy.base={base}", "policy.trust_remote_code=true"]
    with pytest.raises(UserError, match=f"policy.base: .*{line}"):
        require_files(load_recipe("arithmetic", settings))
    bare = [*settings, "reward_model=null", "rewards=[{name: exact_answer}]"]
    require_files(load_recipe("arithmetic", bare))


def test_trusted_code_that_leaves_is_one_line_that_names_it(tmp_path: Path) -> None:
    base = shipping(tmp_path / "base", MODELS)
    (base / "tokenization_own.py").write_text(TOKENIZER + "import sys\nsys.exit(0)\n")
    settings = json.loads((base / "tokenizer_config.json").read_text()) | {"chat_template": "{{ messages }}"}
    (base / "tokenizer_config.json").write_text(json.dumps(settings))
    recipe = tmp_path / "mine.yaml"
    policy = f"{{base: {base}, chat: true, trust_remote_code: true}}"
    recipe.write_text(f"policy: {policy}\nwarm_start: null\nreward_model: null\nselect: all\n")
    with pytest.raises(UserError, match=r"called sys\.exit\(0\) \(.*/tokenization_own\.py, line 6\)"):
        require_files(load_recipe(recipe, ["rollouts.max_tokens=16"]))
