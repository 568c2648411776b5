"""Stages of dvc.yaml: they depend on code and names that exist; a user's stage depends on the code that reads files."""

from pathlib import Path

import yaml
from pytest import MonkeyPatch

import models
from models.datasets.built_in import TASK_SETS
from models.datasets.settings import DataSettings
from tasks.data.data_sources import source_files

ROOT = Path(models.__path__[0]).parent


def test_a_users_stage_changes_with_any_module_that_reads_files(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    (tmp_path / "datasets").mkdir()
    module = tmp_path / "datasets" / "formats.py"
    monkeypatch.setattr(models, "__path__", [str(tmp_path)])
    digests = []
    for code in ("a = 1", "a = 2", "a = 1"):
        module.write_text(code)
        settings = DataSettings(name="mine", path=(tmp_path / "rows.jsonl",), format="gsm8k")
        digests.append(yaml.safe_load(source_files(settings, tmp_path)[1])["code"])
    assert digests[0] == digests[2] != digests[1]


def test_the_stages_of_the_built_in_data_depend_on_code_that_is_there() -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    code = {name for stage in stages.values() for name in stage.get("do", stage)["deps"] if name.startswith("models/")}
    assert len(code) > 2 and [name for name in sorted(code) if not (ROOT / name).exists()] == []


def test_every_task_set_has_a_section_a_module_and_a_place_in_the_list() -> None:
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    assert params["task_sets"] == list(TASK_SETS)
    for name in TASK_SETS:
        assert name in params and params[f"prepare_{name}"]["path"] == f"data/raw/{name}"
        assert (ROOT / "models" / "task_sets" / f"{name}.py").is_file()
    assert set(params["document_sets"]) <= set(TASK_SETS)
