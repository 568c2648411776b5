"""Mirrors end with the flow that they belong to, whatever MLflow answers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from mirror_readers import needs
from mirrored_training import training

from tasks.tracking import store, tags
from tasks.tracking.mirrors import choice, mirrored


@needs("tensorboard")
def test_mirrors_end_with_the_flow_although_the_reason_cannot_be_recorded(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tag is refused, as by MLflow if another thread adds it at the same time."""
    monkeypatch.setenv(choice.VARIABLE, "tensorboard")
    (home / "mirrors").write_text("a file in the place of the folder")
    patiently = store.patiently

    def refusing(call: Callable[..., object], *args: object, **kwargs: object) -> object:
        if tags.MIRROR_OFF in args:
            raise RuntimeError("UNIQUE constraint failed: tags.key, tags.run_uuid")
        return patiently(call, *args, **kwargs)

    monkeypatch.setattr(store, "patiently", refusing)
    flow, _ = training(home, "sums")
    assert store.client().get_run(flow).info.status == "FINISHED"
    assert not mirrored._workers and not mirrored._runs
