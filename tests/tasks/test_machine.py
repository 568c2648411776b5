"""The record of a run's packages and machine: it contains everything that decides the bits, and no secrets."""

import hashlib
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tasks.host import machine


def test_a_list_of_packages_reads_back_as_it_was_and_names_what_computes() -> None:
    versions = machine.packages()
    assert machine.read_packages(machine.listed_packages(versions)) == versions
    assert versions["torch"] == importlib.metadata.version("torch")
    assert list(versions) == sorted(versions)


def test_the_machine_names_all_that_decides_bits(tmp_path: Path) -> None:
    (tmp_path / "cpu.lock").write_bytes(b"torch==1\n")
    facts = machine.machine(tmp_path)
    assert set(machine.BITS) <= set(facts)
    assert torch.version.git_version in facts["torch"] and "\n" not in facts["torch build"]
    assert facts["sha256 of cpu.lock"] == hashlib.sha256(b"torch==1\n").hexdigest()
    assert "sha256 of cuda.lock" not in facts


def test_variables_that_choose_arithmetic_are_kept_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "concealed-1")
    monkeypatch.setenv("REWARDFLOW_NOTIFY_URL", "https://hooks.example/concealed-2")
    facts = machine.machine(tmp_path)
    assert facts["$MKL_CBWR"] == "COMPATIBLE"
    assert not [value for value in facts.values() if "concealed" in value]
    assert {key[1:] for key in facts if key.startswith("$")} <= set(machine.MATTERS)


@pytest.mark.rotating(of=6)
def test_another_instruction_set_is_another_machine(tmp_path: Path) -> None:
    code = f"from tasks.host.machine import machine; from pathlib import Path; m = machine(Path({str(tmp_path)!r}))\n"
    code += "print(m['cpu instructions'], m['threads'])"
    said = subprocess.check_output(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "2"},
        text=True,
    )
    assert said.split() == ["DEFAULT", "2"]


@pytest.mark.parametrize("text", ["", "nothing", "[1, 2]", '"x"', "{"])
def test_what_is_no_record_of_a_machine_is_empty(text: str) -> None:
    assert machine.read_machine(text) == {}
