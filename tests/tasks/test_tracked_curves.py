"""The run page draws reward, accuracy, KL and length before anything else."""

from tasks.pages.curves import first_curves

ROUND = {
    "reward/total": 0.5, "reward/exact_answer": 0.25, "reward/reward_model": 0.3, "policy/kl": 0.01, "policy/loss": 1.0,
    "rollouts/length": 17.0, "Zeal/of another": 1.0, "engine/canary_gap": 0.0, "speed/round": 9.0,
}  # fmt: skip


def test_sorted_as_the_page_sorts_reward_accuracy_kl_and_length_come_first() -> None:
    shown = ROUND | first_curves(ROUND)
    assert sorted(shown)[:4] == ["Learning/1 reward", "Learning/2 accuracy", "Learning/3 KL", "Learning/4 length"]
    assert [shown[key] for key in sorted(shown)[:4]] == [0.5, 0.25, 0.01, 17.0]


def test_a_method_without_a_verifier_has_the_other_three() -> None:
    assert list(first_curves({"reward/total": 1.0, "policy/kl": 0.0, "rollouts/length": 3.0})) == [
        "Learning/1 reward",
        "Learning/3 KL",
        "Learning/4 length",
    ]
