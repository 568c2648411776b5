"""Estimate of a training's memory by part, from the code that will run, on tensors that have only shapes.

The policy is made of shapes alone (torch's meta device), with its adapters, its reference and the companions that the
recipe's parts bring. What a packed row keeps for its backward pass is counted by `models.recipes.plan.activations`. The
projection to the vocabulary is counted by its blocks (`models.learner.fused_log_probs`): whole logits are never held.

Not included: memory kept by allocators, workspaces of kernels, the CUDA context. A plan is an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from models.engines.engine import engine_dtype, has_vllm
from models.engines.vllm_engine import CACHE_BLOCK, cache_bytes
from models.engines.vocabulary import read_config
from models.learner.eight_bit import in_float, moment_bytes
from models.learner.fused_log_probs import kept_bytes
from models.learner.logit_blocks import block_shape
from models.learner.recompute import layers_of
from models.method.slots import companions_of, reference_is_read_alone
from models.policies.build import new_shapes
from models.policies.rounded import rounded_layers
from models.policies.trained_parts import set_to_learn
from models.recipes.plan.activations import FLOAT, PackedRowSize, activations_of, tower_activations
from models.recipes.plan.configs import judge_config
from models.recipes.schema import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Footprint:
    """Bytes by part, at the moment of a round or of an update in which most is held."""

    parameters: int
    trained: int
    """Number of parameters that the optimiser updates."""
    weights: int
    gradients: int
    optimiser: int
    activations: int
    """Activations that a row keeps for its backward pass."""
    backward: int
    """Further memory while the backward pass runs through the layers."""
    logits: int
    """Blocks of logits in the projection to the vocabulary, with the projection's cast weights and its gradient."""
    put_together: int
    """With several learners: the weights and gradients that each of them holds whole while it reads a row."""
    several_rows: bool
    """Whether gradients of an earlier row are held while a row is read."""
    reference: int = 0
    companions: int = 0
    """Models that are trained in addition to the policy, with their gradients and moments."""
    reward_model: int = 0
    teachers: int = 0
    """Frozen models that the policy is distilled from; one that another recipe makes counts with the policy's size."""
    judge: int = 0
    """The judge's weights, if it is on this machine; its other memory is freed before the learner fits."""
    engine: int = 0
    sleeps: bool = False
    """Whether the engine gives its memory up while the learner fits."""
    vision: int = 0
    """Activations of the vision tower, if it learns: a picture for each prompt of a row."""
    offloaded: bool = False
    """Whether the reference is in memory only while it is read."""

    @property
    def passing(self) -> int:
        """Peak of the memory that is freed after an update: gradients, and activations and logits of a row.

        The projection is done before the layers' backward pass begins; the gradients of a first row are made while its
        activations are freed.
        """
        reading = self.activations + self.vision + max(self.logits, self.backward)
        return self.gradients + reading if self.several_rows else max(self.gradients, reading)

    @property
    def total(self) -> int:
        """Largest number of bytes held at once."""
        staying = self.weights + self.optimiser + self.companions + self.reward_model + self.teachers + self.judge
        fitting = self.put_together + self.passing
        reading = self.put_together + self.logits
        if self.offloaded:
            reading += self.reference
        else:
            staying += self.reference
        learning = max(fitting, reading)
        return staying + (max(learning, self.engine) if self.sleeps else learning + self.engine)


@dataclass(frozen=True)
class Device:
    """Device that a training is planned for."""

    kind: str
    """cuda or cpu."""
    memory: int
    """Memory of the device, bytes."""


def footprint(
    recipe: Recipe, config: Any, row: PackedRowSize, device: Device, autocast: torch.dtype | None
) -> Footprint:
    """Estimate the memory of a round of the loop; with several learners that of the first, which needs most.

    Args:
        recipe: has a schedule.
        config: configuration of the policy, as transformers has it.
        row: the learner's largest.
        device: where it runs.
        autocast: dtype of the matrix products; None: float32.
    """
    assert recipe.schedule is not None
    whole = _parts(recipe, config, row, autocast)
    again = recipe.schedule.gradient_checkpointing is True
    activations, backward = activations_of(config, partial(adapted, recipe=recipe), row, autocast, again)
    sampling = recipe.rollouts.sampling
    cut = sampling.top_p < 1.0 or sampling.top_k > 0 or recipe.rollouts.mask_top_p < 1.0
    return Footprint(
        **whole,
        teachers=-(-_teachers(recipe, autocast, whole["parameters"]) // recipe.placement.learners),
        engine=0 if recipe.placement.placed else _engine(recipe, config, device, autocast, whole["parameters"]),
        activations=activations,
        backward=backward,
        several_rows=row.several,
        sleeps=_sleeps(recipe, device),
        offloaded=recipe.reference.offload,
        logits=logits_of(config, row, device, autocast, cut=cut, learns=recipe.policy.lora is None),
    )


def _parts(recipe: Recipe, config: Any, row: PackedRowSize, autocast: torch.dtype | None) -> dict[str, int]:
    """Count the parameters, the bytes of the parts that stay from round to round, and those of pictures."""
    count = recipe.placement.learners
    with torch.device("meta"):
        plain = new_shapes(config)
        parameters = numbers_of(plain)
        judge = judge_config(recipe, config)
        judging = plain if judge is None else new_shapes(judge)
        companion_models = companions_of((*recipe.rewards, recipe.advantage), plain, lambda: judging).values()
        companions = sum(
            2 * FLOAT * _share(learns := list(companion.model.parameters()), count)
            + (2 * FLOAT * _share(learns, count) if in_float(companion.optimiser) else moment_bytes(learns))
            for companion in companion_models
        )
        kept = recipe.reference.kept and (recipe.reference.moves or recipe.policy.lora is None)
        saved = 0
        if autocast is not None and count == 1 and reference_is_read_alone(recipe.reference, recipe.rollouts):
            saved = (FLOAT - autocast.itemsize) * sum(map(numbers_of, rounded_layers(plain)))
        scored = recipe.reward_model is not None  # it is opened for evaluations too
        head = 0 if config.get_text_config().tie_word_embeddings else numbers_of(plain.get_output_embeddings())
        reference = FLOAT * _share(plain.parameters(), count) - saved if kept else 0
        policy = adapted(plain, recipe)
    assert recipe.schedule is not None
    return {
        "parameters": parameters,
        **learning_parts(policy, count, eight_bit=recipe.schedule.optimiser.moments == "int8"),
        "vision": tower_activations(policy, row.prompts),
        "reference": reference,
        "companions": companions,
        "reward_model": FLOAT * (parameters - head) if scored else 0,
        "judge": FLOAT * numbers_of(judging) if judge is not None else 0,
    }


def learning_parts(model: nn.Module, learners: int, *, eight_bit: bool) -> dict[str, int]:
    """Count the memory of a model in training on the first of several learners, activations not included.

    Args:
        model: shapes alone; its parameters that require a gradient learn.
        learners: how many hold it together.
        eight_bit: whether the optimiser's moments have 8 bits.
    """
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    share = _share(learning, learners)
    return {
        "trained": _size(learning),
        "weights": FLOAT * _share(model.parameters(), learners),
        "gradients": FLOAT * share,
        "optimiser": moment_bytes(learning) if eight_bit else 2 * FLOAT * share,
        "put_together": _put_together(model) if learners > 1 else 0,
    }


def adapted(policy: PreTrainedModel, recipe: Recipe) -> PreTrainedModel:
    """Add the recipe's adapters, if it has any, and freeze the parts that do not learn."""
    return set_to_learn(policy, recipe.policy.lora, recipe.policy.train, recipe.seed)


def numbers_of(module: nn.Module) -> int:
    """Count the parameters of a module."""
    return _size(module.parameters())


def _size(weights: Iterable[Tensor]) -> int:
    return sum(weight.numel() for weight in weights)


def _share(weights: Iterable[Tensor], learners: int) -> int:
    """Count the numbers that the first of several learners holds: each tensor is cut along its first dimension."""
    return sum(-(-len(weight) // learners) * weight[0].numel() for weight in weights)


def _put_together(policy: nn.Module) -> int:
    """Count the bytes that are whole during a backward pass: the weights outside of layers, the layer that is read and
    the one that is fetched at the same time, and the gradients of all but the last."""
    layers = layers_of(policy)
    (layer, trained), whole = max((_both(part) for part in layers), default=(0, 0)), _both(policy)
    outside_layers = whole[0] - sum(numbers_of(part) for part in layers)
    outside_layers_trained = whole[1] - sum(_both(part)[1] for part in layers)
    return FLOAT * (outside_layers + 2 * layer + outside_layers_trained + trained)


def _both(module: nn.Module) -> tuple[int, int]:
    """Count the weights of a module, and those that learn."""
    return numbers_of(module), _size(weight for weight in module.parameters() if weight.requires_grad)


def logits_of(
    config: Any, row: PackedRowSize, device: Device, autocast: torch.dtype | None, *, cut: bool, learns: bool
) -> int:
    """Count the blocks of logits with their derived tensors, and the weights and gradient of the projection.

    Args:
        config: configuration of the model, as transformers has it.
        row: what is read.
        device: where it runs.
        autocast: dtype of the matrix products; None: float32.
        cut: whether the distribution is cut, by top-p, top-k or a mask.
        learns: whether the projection has a gradient.
    """
    text = config.get_text_config()
    matrix = int(text.vocab_size * text.hidden_size)
    rows, columns = block_shape(row.completion_tokens, text.vocab_size, device.kind, cut=cut)
    blocks = BLOCKS * FLOAT * rows * columns
    cast = autocast.itemsize * matrix if autocast is not None else 0
    kept = kept_bytes(row.completion_tokens, text.vocab_size, autocast or torch.float32, device.kind)
    states = 2 * FLOAT * row.completion_tokens * int(text.hidden_size)
    return kept + blocks + cast + (FLOAT * matrix if learns else 0) + states


BLOCKS = 3
"""Blocks of logits that are alive together in the backward pass: logits, their gradient, and that in the products'
precision or on its way to the projection."""


def _teachers(recipe: Recipe, autocast: torch.dtype | None, parameters: int) -> int:
    teacher = recipe.teacher
    if teacher is None:
        return 0
    total = 0
    for frozen in filter(None, (teacher, teacher.contrast)):
        if frozen.path is not None:
            with torch.device("meta"):
                total += numbers_of(new_shapes(read_config(Path(frozen.path))))
        elif frozen.recipe is not None:
            total += parameters
    return total * (autocast or torch.float32).itemsize


def _engine(recipe: Recipe, config: Any, device: Device, autocast: torch.dtype | None, parameters: int) -> int:
    """Count the engine's additional memory: its share of a GPU, or its copy of the weights and its cache."""
    if not recipe.rollouts.draws:
        return 0
    if device.kind == "cuda" and _is_vllm(recipe, device):
        return int(recipe.engine.memory_share * device.memory)
    dtype = engine_dtype(recipe.engine, autocast or torch.float32)
    longest = recipe.rollouts.max_tokens
    blocks = recipe.engine.max_sequences * (longest // CACHE_BLOCK + 1)
    return parameters * dtype.itemsize + cache_bytes(config.get_text_config(), blocks, dtype)


def _is_vllm(recipe: Recipe, device: Device) -> bool:
    name = recipe.engine.name
    return name == "vllm" or (name == "auto" and (has_vllm() or device.kind == "cuda"))


def _sleeps(recipe: Recipe, device: Device) -> bool:
    """Return whether the engine gives its memory to the learner; it does not if it draws the next round then."""
    if recipe.schedule is None or recipe.schedule.staleness or recipe.placement.placed:
        return False
    if device.kind == "cuda":
        return recipe.engine.sleep is not False
    return recipe.engine.sleep is True and not _is_vllm(recipe, device)  # vLLM can on a GPU alone
