"""Tokens of the steps: all steps encode a prompt as it is served, and a score does not depend on the end token."""

from pathlib import Path

import pytest
import torch

from models.datasets.schema import arrow_schema, file_name, write_rows
from models.learner.packing import Sequences
from models.policies.folder import save_model_folder
from models.recipes.load import load_recipe
from models.reward_models.model import reward_model_from_policy
from models.reward_models.read_pairs import read_pairs
from models.reward_models.scoring import score_all
from models.text.encoding import Codec
from models.training.read_demonstrations import demonstrations
from models.training.read_problems import PromptSections, read_problems, read_prompts
from tasks.compute.open_engine import ScorerSections, reward_scorer
from tasks.registered.reward_model import RewardModelFiles
from tests.support.special_tokens import llama_like
from tests.support.tiny_models import tiny_policy

ROOT = Path(__file__).resolve().parents[3]
PROMPT = "1 + 2 ="


@pytest.fixture
def data(tmp_path):
    """Write one row of each kind and split, all with the same prompt, and return the folder."""
    common = {"prompt": PROMPT, "level": 1}
    rows = {
        "problems": common | {"id": "p", "answer": "3", "tests": "", "entry_point": ""},
        "demonstrations": common | {"id": "d", "prompt_id": "p", "completion": "3", "answer": "3", "flaw": "none"},
        "preferences": common | {"id": "q", "prompt_id": "p", "chosen": "3", "rejected": "4", "flaw": "slip"},
    }
    for kind, row in rows.items():
        for split in ("train", "validation"):
            write_rows(tmp_path / file_name(kind, split), [row], arrow_schema(kind))
    return tmp_path


@pytest.mark.parametrize("chat", [False, True])
def test_every_step_reads_a_prompt_as_it_is_served(chat, data):
    tokenizer = llama_like()
    codec = Codec(tokenizer, chat)
    asked = [{"role": "user", "content": PROMPT}]
    served = (
        tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
        if chat
        else tokenizer(PROMPT)["input_ids"]
    )
    assert served.count(tokenizer.bos_token_id) == 1 and served[0] == tokenizer.bos_token_id
    given = ["rollouts.max_tokens=8", "policy.size.positions=64"]
    recipe = PromptSections(load_recipe("dpo", given))
    (shown,) = demonstrations(data, codec, "train", 64).prompts
    ((pair,), _) = read_pairs(data, codec, "train", 64)
    (learned,), (held_out,) = read_prompts(data, codec, recipe), read_problems(data, codec, "validation", recipe)
    assert list(shown) == list(pair.prompt) == list(learned.tokens) == list(held_out.tokens) == served


def test_a_score_does_not_depend_on_which_end_a_completion_has(tmp_path):
    save_model_folder(tiny_policy(torch.float32, vocabulary=30), llama_like(), tmp_path / "policy")
    judge = reward_model_from_policy(tmp_path / "policy", seed=0, head_std=1.0)
    save_model_folder(judge, llama_like(), tmp_path / "reward_model")
    rewarded = RewardModelFiles(tmp_path / "reward_model", "", "")
    recipe = ScorerSections(load_recipe("arithmetic", ["policy.precision=float32"]))
    scores = reward_scorer(rewarded, recipe, tmp_path, Codec(llama_like(), also_end=(7,)))
    asked = Sequences([(3, 4), (3, 4), (3, 4)], [(5, 1), (5, 7), (5, 6)])
    ended, otherwise, cut = scores(asked).tolist()
    assert ended == otherwise == pytest.approx(float(score_all(judge, asked.take([0]))[0])) and cut != ended
