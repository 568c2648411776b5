"""Push of data: once, and again if the remote has lost them, so that a model's data exist outside of this machine."""

import shutil

import pytest

from models.datasets.settings import DataSettings
from tasks.data import versions
from tasks.steps.prepare_data import push_data

pytestmark = pytest.mark.rotating(of=2)


@pytest.fixture
def pushes(monkeypatch):
    """Return a list that records the pushes. They are executed too."""
    made = []
    push = versions.push

    def counted(*given, **named):
        made.append(given)
        push(*given, **named)

    monkeypatch.setattr(versions, "push", counted)
    return made


def objects(root):
    return [file for file in (root / ".rewardflow/dvc-remote").rglob("*") if file.is_file()]


@pytest.mark.slow
def test_data_are_pushed_once_and_again_after_the_remote_was_emptied(root, tmp_path, pushes, caplog):
    version = versions.prepare(DataSettings(), root, lambda line: None)
    for _ in range(2):
        push_data(version, root, tmp_path)
    assert len(pushes) == 1 and not caplog.records
    there = objects(root)
    shutil.rmtree(root / ".rewardflow/dvc-remote")
    for _ in range(2):
        push_data(version, root, tmp_path)
    assert len(pushes) == 2 and sorted(objects(root)) == sorted(there)
    assert caplog.messages == ["the DVC remote no longer has these data: they are pushed again"]


def test_a_remote_on_another_machine_is_not_asked_so_that_one_that_is_away_holds_nothing_up(root, monkeypatch):
    config = root / ".dvc/config"
    remote = "\n['remote \"bucket\"']\n    url = s3://nowhere/data\n    endpointurl = http://127.0.0.1:9\n"
    config.write_text(config.read_text().replace("remote = local", "remote = bucket") + remote)

    def away(*given):
        raise AssertionError("it was asked")

    monkeypatch.setattr("socket.socket.connect", away)
    assert versions.stored(root, ["0" * 32]) == {"0" * 32}
