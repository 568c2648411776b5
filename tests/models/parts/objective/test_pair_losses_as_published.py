"""Losses over pairs compared with their published formulas in float64: loss and gradient agree to 1e-12.

The formulas are those of TRL 1.16 (trl/trainer/dpo_trainer.py, trl/experimental/cpo, trl/experimental/orpo) and of the
authors' code where a docstring names it, implemented for one pair of token log-probs at a time. `w` and `l` are the
better and the worse answer under the policy, `rw` and `rl` under the reference.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.parts.objective.apo import Apo
from models.parts.objective.cpo import Cpo
from models.parts.objective.discopop import DiscoPop
from models.parts.objective.dpo import Dpo
from models.parts.objective.exo import Exo
from models.parts.objective.f_dpo import FDpo
from models.parts.objective.hinge import Hinge
from models.parts.objective.ipo import Ipo
from models.parts.objective.length_dpo import LengthDpo
from models.parts.objective.nca import Nca
from models.parts.objective.orpo import Orpo
from models.parts.objective.rdpo import RobustDpo
from models.parts.objective.simpo import SimPo
from tests.support.ragged_pairs import gap, random_pairs

BETA = 0.4


def log_sigmoid(x: Tensor) -> Tensor:
    return -torch.log1p(torch.exp(-x))


def delta(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741 - as the papers have it
    """Compute log pi/ref of the better answer minus that of the worse one."""
    return (w.sum() - rw.sum()) - (l.sum() - rl.sum())


def sigmoid_smoothed(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    """Mitchell's cDPO; eric-mitchell/direct-preference-optimization, trainers.py, preference_loss."""
    m = BETA * delta(w, l, rw, rl)
    return -log_sigmoid(m) * (1 - 0.2) - log_sigmoid(-m) * 0.2


def sigmoid_and_nll(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    """Iterative RPO, equation 2: DPO plus the better answer's negative log-likelihood divided by its length."""
    return -log_sigmoid(BETA * delta(w, l, rw, rl)) + 0.7 * (-w.sum() / len(w))


def robust(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    m = BETA * delta(w, l, rw, rl)
    return (-(1 - 0.2) * log_sigmoid(m) + 0.2 * log_sigmoid(-m)) / (1 - 2 * 0.2)


def ipo_of_means(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    return ((w.mean() - rw.mean()) - (l.mean() - rl.mean()) - 1 / (2 * BETA)) ** 2


def hinge_norm(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    """TRL's `hinge`, which is RSO's hinge-norm."""
    return torch.relu(1 - BETA * delta(w, l, rw, rl))


def slic(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    """SLiC-HF, equation 2, divided by delta; the regulariser is the better answer's mean log-prob per token."""
    lead = 1 / BETA
    return (torch.relu(lead - w.sum() + l.sum()) - lead * 0.5 * w.mean()) / lead


def simpo(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    """princeton-nlp/SimPO, scripts/simpo_trainer.py, with its ratio gamma / beta = 0.3."""
    return -log_sigmoid(BETA * (w.mean() - l.mean() - 0.3))


def cpo(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    return -log_sigmoid(BETA * (w.sum() - l.sum())) - w.mean()


def orpo(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    """xfactlab/orpo, src/orpo_trainer.py."""
    pw, pl = w.mean(), l.mean()
    log_odds = (pw - pl) - (torch.log1p(-torch.exp(pw)) - torch.log1p(-torch.exp(pl)))
    return -pw - BETA * torch.log(torch.sigmoid(log_odds))


def apo_zero(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    return 1 - torch.sigmoid(BETA * (w.sum() - rw.sum())) + torch.sigmoid(BETA * (l.sum() - rl.sum()))


def apo_down(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    return torch.sigmoid(BETA * (w.sum() - rw.sum())) + 1 - torch.sigmoid(BETA * delta(w, l, rw, rl))


def nca_pair(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    better, worse = BETA * (w.sum() - rw.sum()), BETA * (l.sum() - rl.sum())
    return -log_sigmoid(better) - 0.5 * log_sigmoid(-better) - 0.5 * log_sigmoid(-worse)


def exo_pair(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    q, e = torch.sigmoid(BETA * delta(w, l, rw, rl)), torch.tensor(0.01, dtype=torch.float64)
    return q * (torch.log(q) - torch.log1p(-e)) + (1 - q) * (torch.log(1 - q) - torch.log(e))


def discopop(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    logits = BETA * delta(w, l, rw, rl)
    modulation = torch.sigmoid(logits / 0.5)
    return -log_sigmoid(logits) * (1 - modulation) + torch.exp(-logits) * modulation


def sigmoid_norm(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    return -log_sigmoid(BETA * ((w.mean() - rw.mean()) - (l.mean() - rl.mean())))


def length_regularised(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
    """Park et al., with alpha 0.3."""
    return -log_sigmoid(BETA * delta(w, l, rw, rl) + 0.3 * (len(w) - len(l)))


def f_dpo(slope: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return the loss of f-DPO for a derivative f'(t) with t = pi / ref, as TRL's f_divergence_type."""

    def formula(w: Tensor, l: Tensor, rw: Tensor, rl: Tensor) -> Tensor:  # noqa: E741
        better, worse = torch.exp(w.sum() - rw.sum()), torch.exp(l.sum() - rl.sum())
        return -log_sigmoid(BETA * (slope(better) - slope(worse)))

    return formula


CASES = {
    "cdpo": (Dpo(beta=BETA, label_smoothing=0.2), sigmoid_smoothed),
    "dpo_and_sft": (Dpo(beta=BETA, sft=0.7), sigmoid_and_nll),
    "robust": (RobustDpo(beta=BETA, flip_rate=0.2), robust),
    "ipo": (Ipo(beta=BETA, average="tokens"), ipo_of_means),
    "hinge_norm": (Hinge(beta=BETA, against_reference=True), hinge_norm),
    "slic": (Hinge(beta=BETA, sft=0.5), slic),
    "simpo": (SimPo(beta=BETA, gamma=0.3 * BETA), simpo),
    "cpo": (Cpo(beta=BETA), cpo),
    "orpo": (Orpo(beta=BETA), orpo),
    "apo_zero": (Apo(beta=BETA), apo_zero),
    "apo_down": (Apo(beta=BETA, anchor="down"), apo_down),
    "nca_pair": (Nca(beta=BETA), nca_pair),
    "exo_pair": (Exo(beta=BETA, label_smoothing=0.01), exo_pair),
    "discopop": (DiscoPop(beta=BETA, temperature=0.5), discopop),
    "sigmoid_norm": (LengthDpo(beta=BETA, average="tokens"), sigmoid_norm),
    "length_regularised": (LengthDpo(beta=BETA, length_weight=0.3), length_regularised),
    "f_dpo_reverse_kl": (FDpo(beta=BETA, to="reverse_kl"), f_dpo(torch.log)),
    "f_dpo_forward_kl": (FDpo(beta=BETA, to="forward_kl"), f_dpo(lambda t: 1 - 1 / t)),
    "f_dpo_jensen_shannon": (FDpo(beta=BETA), f_dpo(lambda t: torch.log(2 * t / (t + 1)))),
    "f_dpo_alpha": (FDpo(beta=BETA, to="alpha", alpha=0.3), f_dpo(lambda t: (1 - t**-0.3) / 0.3)),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_the_published_ones(name: str, seed: int) -> None:
    objective, formula = CASES[name]
    assert gap(objective, formula, random_pairs(seed, spread=0.5)) <= 1e-12
