"""A project outside a clone: its files, its data stages, a run in it, and the wheel that brings all of them."""

import os
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from flows.new_project import create_project, project_files
from models.base.errors import UserError
from models.base.package_files import CODE, data_code_digest
from tasks.data.project_stages import CODE_FILE, code_digest_text, update_code_digest


def test_a_project_has_git_dvc_and_every_file(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    files = create_project(folder)
    assert {"README.md", ".gitignore", "dvc.yaml", "params.yaml", "prefect.yaml", "recipes/first.yaml"} <= set(files)
    assert all((folder / name).is_file() for name in files)
    assert (folder / ".git").is_dir() and (folder / ".dvc" / "config").is_file()
    assert version("rewardflow") in (folder / "README.md").read_text()
    assert not [path for path in tmp_path.iterdir() if path.name != "demo"]


def test_a_project_inside_another_repository_gets_no_git_of_its_own(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    create_project(tmp_path / "inner")
    assert not (tmp_path / "inner" / ".git").exists() and (tmp_path / "inner" / ".dvc").is_dir()


def test_an_existing_file_is_kept_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("mine: 1\n")
    with pytest.raises(UserError, match=r"params\.yaml: exists already"):
        create_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]
    assert (tmp_path / "params.yaml").read_text() == "mine: 1\n"


def test_an_existing_folder_keeps_its_other_files(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text("extends: arithmetic\n")
    create_project(tmp_path)
    assert (tmp_path / "recipes" / "mine.yaml").is_file() and (tmp_path / "recipes" / "first.yaml").is_file()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("")
    with pytest.raises(UserError, match="is a file; name a folder"):
        create_project(tmp_path / "demo")


def test_the_stages_depend_on_the_digest_of_the_code_and_not_on_its_folders() -> None:
    stages = yaml.safe_load(project_files("demo")["dvc.yaml"])["stages"]
    original = yaml.safe_load((CODE / "dvc.yaml").read_text())["stages"]
    assert stages.keys() == original.keys()
    for entry in stages.values():
        stage = entry.get("do", entry)
        assert not [path for path in stage.get("deps", []) if path.startswith("models/")]
        assert {CODE_FILE: ["digest"]} in stage["params"]


def test_the_digest_of_another_release_is_replaced_and_a_clone_gets_none(tmp_path: Path) -> None:
    update_code_digest(tmp_path)
    assert not (tmp_path / CODE_FILE).exists()
    (tmp_path / "data").mkdir()
    (tmp_path / CODE_FILE).write_text("digest: 0\n")
    update_code_digest(tmp_path)
    assert (tmp_path / CODE_FILE).read_text() == code_digest_text()
    assert yaml.safe_load(code_digest_text()) == {"digest": data_code_digest()}


def test_deployments_name_the_projects_own_file_and_recipe() -> None:
    files = project_files("demo")
    deployments = yaml.safe_load(files["prefect.yaml"])["deployments"]
    for deployment in deployments:
        file, _, function = deployment["entrypoint"].partition(":")
        assert file == "deployed.py" and f"import {function}\n" in files[file]
        assert deployment["parameters"].get("recipe", "first") == "first"


@pytest.mark.thorough
def test_an_installed_wheel_runs_a_project_outside_the_clone_and_is_pinned(tmp_path: Path) -> None:
    python = _with_wheel(tmp_path / "venv")
    environment = {key: value for key, value in os.environ.items() if key not in ("REWARDFLOW_HOME", "PYTHONPATH")}
    environment |= {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
    environment |= {"GIT_COMMITTER_EMAIL": "a@b", "HOME": str(tmp_path)}

    def call(*command: str, folder: Path) -> str:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    command = str(python.parent / "rewardflow")
    call(command, "init", "demo", folder=tmp_path)
    demo = tmp_path / "demo"
    where = call(str(python), "-c", "import rewardflow, models; print(models.__file__)", folder=demo)
    assert where.startswith(str(tmp_path / "venv"))
    for message in ("Start", "Pin"):
        call("git", "add", "-A", folder=demo)
        call("git", "commit", "--quiet", "--message", message, folder=demo)
        output = call(command, "run", "first", "--smoke", folder=demo)
    assert "verdict" in output and "not pinned" not in output
    assert f"release: {version('rewardflow')} (sha256 " in call(command, "lineage", "1", folder=demo)
    assert "identical" in call(command, "reproduce", "1", folder=demo)


def _with_wheel(folder: Path) -> Path:
    """Make an environment with this package installed as a wheel over the packages of this one. Returns its Python."""
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "packages.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    wheel = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*wheel, "--target", str(site), str(CODE)], check=True, timeout=300)
    scripts = folder / "bin"
    for script in (site / "bin").glob("rewardflow"):
        text = script.read_text().split("\n", 1)[1]
        (scripts / "rewardflow").write_text(f"#!{scripts / 'python'}\n{text}")
        (scripts / "rewardflow").chmod(0o755)
    return scripts / "python"
