"""Values of turns on frozen features: the expected return of the rest of an episode after a turn (Digi-Q; paper 123).

    Q(h, a) = head(state of a frozen backbone at the last token of a)
    target of turn t = r_t + gamma * Q_lagged(h_t+1, a_t+1)         r_t alone for the last turn

Temporal differences along logged episodes: the fixed point is the value of the policy that played them, on a chain that
of dynamic programming. The backbone is the policy's initial one and is never trained, so features are computed once a
round and the fit is that of a small network. The lagged head is the head at the beginning of the round's fit.

A turn that was never logged at a state has no target, so its value comes from similar turns elsewhere: a second call
where an answer is due looks as good as the first. `conservative` adds CQL's term (Conservative Q-Learning,
arXiv 2006.04779),

    conservative * mean over the states of  log sum over a' exp Q(h, a') - Q(h, a)       a': the policy's proposals

which lowers the proposals and raises the logged turns, and is level where both are drawn alike.

On disk (`ACTION_VALUES` in a policy's model folder) it is the backbone as a model folder, with the head in
`head.safetensors`. A policy that is used with it need not be the one that it was fitted with; it needs the same tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from models.base.atomic_write import replace_folder
from models.base.device import on_device
from models.base.errors import UserError
from models.learner.all_completions import all_states
from models.learner.log_probs import hidden_width, plain_inner
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.method.learner import Companion
from models.method.schedule import BUDGET_KEY

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ACTION_VALUES = "action_values"
"""Folder of the critic in the model folder of a policy that was trained with it."""
HEAD = "head.safetensors"


class ActionValues(nn.Module):
    """A frozen backbone and a head of two layers."""

    def __init__(self, policy: nn.Module) -> None:
        """Copy the backbone of `policy`; the head's weights are drawn from torch's global generator."""
        super().__init__()
        source: Any = plain_inner(policy).base_model
        self.backbone: PreTrainedModel = copy.deepcopy(source).requires_grad_(False)
        width, parameter = hidden_width(policy), next(self.backbone.parameters())
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.head.to(device=parameter.device, dtype=parameter.dtype)

    def features(self, histories: Sequence[Sequence[int]], turns: Sequence[Sequence[int]], budget: int) -> Tensor:
        """Compute the state at the last token of each turn after its history, [turns, hidden]; no gradient.

        Args:
            histories: ids before each turn, [turns] lists.
            turns: ids of each turn, [turns] lists.
            budget: tokens of one packed row; memory only.
        """
        closed = [(*turn, turn[-1]) for turn in turns]  # the state that would predict one more token
        sequences = Sequences(histories, closed, nested=True)
        rows = all_states(self.backbone, sequences, autocast=None, token_budget=budget, setting=BUDGET_KEY)
        return torch.stack([row[-1] for row in rows])

    def values(self, features: Tensor) -> Tensor:
        """Compute Q of each turn, [turns, hidden] -> [turns]; gradient flows to the head."""
        action_values: Tensor = self.head(features).squeeze(-1)
        return action_values


def save_action_values(model: ActionValues, folder: Path) -> None:
    """Write a critic into `folder`, whole or not at all."""
    with replace_folder(folder) as target:
        model.backbone.save_pretrained(target)
        head = {name: value.detach().cpu().contiguous() for name, value in model.head.state_dict().items()}
        save_file(head, target / HEAD)


def has_action_values(folder: Path) -> bool:
    """Return whether `folder` holds a critic as `save_action_values` writes it."""
    return (folder / HEAD).is_file()


def load_action_values(folder: Path) -> ActionValues:
    """Load a critic in float32 on the learner's device, read-only.

    Raises:
        UserError: the folder holds none, or a broken one.
    """
    from transformers import AutoModel

    if not has_action_values(folder):
        raise UserError(f"{folder}: {HEAD} is missing; this folder holds another kind of model than a critic of turns")
    try:
        backbone: Any = AutoModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True)
        model = ActionValues(backbone)
        model.head.load_state_dict(load_file(folder / HEAD))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{folder}: the critic cannot be read ({first})") from None
    return on_device(model).eval().requires_grad_(False)


def following_turns(lengths: Sequence[int]) -> Tensor:
    """Return the index of the turn after each, episodes in a row, [turns], int64; -1 after an episode's last."""
    places = torch.arange(1, sum(lengths) + 1)
    places[torch.tensor(list(lengths)).cumsum(0) - 1] = -1
    return places


def fit_action_values(
    companion: Companion,
    features: Tensor,
    rewards: Tensor,
    following: Tensor,
    *,
    gamma: float,
    passes: int,
    optimiser: OptimiserSettings,
    setting: str,
    proposals: Tensor | None = None,
    conservative: float = 0.0,
) -> dict[str, float]:
    """Take temporal-difference steps on logged turns, in place.

    Args:
        companion: the values and their optimiser.
        features: features of the turns, [turns, hidden].
        rewards: rewards of each turn, [turns].
        following: index of the turn after each, [turns]; -1: none.
        gamma: discount per turn.
        passes: steps, each on all turns.
        optimiser: settings of the head's optimiser.
        setting: key of the optimiser in the recipe.
        proposals: features of turns that the policy proposes at each logged state, [turns, N, hidden]; None: none.
        conservative: weight of the term that holds proposals below the logged turns.

    Returns:
        Mean squared error before the last step, the mean value, and how far proposals are above the logged turns.

    Raises:
        UserError: the loss or a gradient is not finite.
    """
    model = companion.model
    assert isinstance(model, ActionValues), "the companion was made by the part that fits it"
    with torch.no_grad():
        lagged = model.values(features)
        later = torch.where(following >= 0, lagged[following.clamp(min=0)], 0.0)
        target = rewards.to(lagged) + gamma * later
    error = values = target
    above = torch.zeros((), device=target.device)
    for _ in range(passes):
        values = model.values(features)
        error = (values - target).square().mean()
        loss = error
        if proposals is not None and conservative:
            above = (model.values(proposals).logsumexp(dim=-1) - values).mean()
            loss = error + conservative * above
        loss.backward()  # type: ignore[no-untyped-call]
        companion.step(optimiser, setting, loss.detach())
    return {
        "squared_error": float(error.detach()),
        "value": float(values.detach().mean()),
        "above": float(above.detach()),
    }
