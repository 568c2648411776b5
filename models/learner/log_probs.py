"""Log-probabilities of completion tokens, by packed rows, shared prompts and a fused output projection.

The backbone reads one packed row; only the hidden states that predict completion tokens pass through the output
projection, block by block. `use_packed_attention` prepares a model for it and checks, on a few tokens, that its packed
log-probs are those of its own plain forward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.base.ranks import whole
from models.learner.attention.packed_attention import NAME, read_packed, register_packed_attention
from models.learner.compiled_blocks import MODELS
from models.learner.distribution import MODEL_DISTRIBUTION, Distribution, Mask
from models.learner.eval_mode import in_eval_mode
from models.learner.fused_log_probs import Head, fused_log_probs
from models.learner.image_features import inputs_with_images
from models.learner.packing import Sequences, packed_row
from models.learner.whole_weights import with_whole_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PROBE = Sequences([(1, 2, 3), (1, 2, 3), (4, 5)], [(6, 7, 8, 9), (5, 4), (3, 2, 1)])
"""Two completions of one prompt and one of another: enough to detect a layout that is ignored."""
SPECIAL_TOKENS = 1000
"""Ids below it are often special tokens, which a model may never have seen in running text: their rounding is large."""
PROBE_TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1}
"""Largest gap that is still rounding, as a share of the spread of the compared values."""


def plain_inner(model: nn.Module) -> PreTrainedModel:
    """Return the transformers model itself, without the wrapper that adapters put around it."""
    adapted: Any = model
    inner: PreTrainedModel = adapted.get_base_model() if hasattr(model, "get_base_model") else adapted
    return inner


def hidden_width(model: nn.Module) -> int:
    """Return the width of the hidden states, of a language model or of the backbone that a module wraps."""
    embeddings: Any = plain_inner(getattr(model, "backbone", model)).get_input_embeddings()
    return int(embeddings.weight.shape[1])


def completion_log_probs(
    model: nn.Module,
    sequences: Sequences,
    *,
    distribution: Distribution = MODEL_DISTRIBUTION,
    autocast: torch.dtype | None = None,
    mask: Mask | None = None,
    kept: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the log-prob of every completion token given the tokens before it, and the entropy of its distribution.

    The output projection, which costs as much as many layers, is computed only for tokens that are `kept`.

    Args:
        model: a causal language model; gradient flows if it is enabled.
        sequences: prompts and completions, [completions]; they are read as one row, equal prompts once.
        distribution: temperature, top-p and top-k that the completions were drawn with.
        autocast: dtype of the matrix products, None for that of the weights. Sums are float32 at least.
        mask: tokens that another model leaves out of the vocabulary before each of these tokens; None: none.
        kept: places of the requested tokens, among all of the completions in a row, [kept], int64; None: all.

    Returns:
        Log-probs and entropies of the tokens that are kept, [kept] each, in nats, completion after completion.

    Raises:
        UserError: the model cannot read packed rows.
        ValueError: a prompt or a completion is empty.
    """

    def read() -> tuple[Tensor, Tensor]:
        states, targets = completion_states(model, sequences, autocast, kept)
        return fused_log_probs(states, output_head(model), targets, distribution, compute=autocast, mask=mask)

    return with_whole_weights(model, read)


def completion_states(
    model: nn.Module, sequences: Sequences, autocast: torch.dtype | None = None, kept: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the hidden state that predicts each kept completion token, [kept, hidden], and return both.

    Returns:
        The states, [kept, hidden], and the tokens, [kept].

    Args:
        kept: see `completion_log_probs`.

    Raises:
        UserError: the model cannot read packed rows.
        ValueError: a prompt or a completion is empty.
    """
    if not all(map(len, sequences.prompts)):
        raise ValueError("a prompt is empty: nothing predicts the first token of its completion")
    use_packed_attention(model)
    row = packed_row(sequences, next(model.parameters()).device)
    hidden = row_states(model, row.ids, row.positions, row.layout, autocast)
    predicting, targets = row.predicting, row.targets
    if kept is not None:
        kept = kept.to(predicting.device)
        predicting, targets = predicting[kept], targets[kept]
    return hidden.index_select(0, predicting), targets


def row_states(model: nn.Module, ids: Tensor, positions: Tensor, layout: Any, autocast: torch.dtype | None) -> Tensor:
    """Compute the hidden states of one packed row, before any head, [tokens, hidden]."""
    backbone: Any = plain_inner(model).base_model

    def read() -> Tensor:
        with torch.autocast(ids.device.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            inputs = inputs_with_images(backbone, ids, positions)
            if inputs is None:
                return read_packed(backbone, ids, positions, layout)
            decoder, options = inputs.reader(backbone)
            return read_packed(decoder, ids, inputs.positions, layout, inputs.embeddings, **options)

    return with_whole_weights(model, read)


def output_head(model: nn.Module, dtype: torch.dtype | None = None) -> Head:
    """Return the weights of the output projection; its low-rank adapters are added, and gradient flows to them.

    For a model that is sharded over the ranks, gradient flows only inside `with_whole_weights`; outside it all ranks
    must call this.

    Args:
        dtype: what the weights are rounded to; None: they are not rounded.
    """
    inner = plain_inner(model)
    layer: Any = inner.get_output_embeddings()
    base = getattr(layer, "base_layer", layer)
    weight, bias = whole(base.weight), getattr(base, "bias", None)
    for name in getattr(layer, "active_adapters", ()) if not getattr(layer, "disable_adapters", False) else ():
        weight = weight + layer.scaling[name] * (whole(layer.lora_B[name].weight) @ whole(layer.lora_A[name].weight))
    config = inner.config.get_text_config()
    return Head(
        weight if dtype is None else weight.to(dtype),
        None if bias is None else whole(bias),
        softcap=getattr(config, "final_logit_softcapping", None),
        scale=getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0),
        compiled=inner in MODELS,
    )


def use_packed_attention(model: nn.Module) -> None:
    """Prepare `model` for packed rows, if it is not yet prepared; ordinary forward passes still work afterwards.

    Raises:
        UserError: its attention cannot take the layout, or another part of it mixes tokens in another way.
    """
    inner = plain_inner(model)
    if inner.config.get_text_config()._attn_implementation == NAME:
        return
    name = type(inner).__name__
    before = inner.config.get_text_config()._attn_implementation
    refused = UserError(
        f"{name} cannot read packed rows: its attention does not go through transformers' attention interface"
    )
    if not inner._can_set_attn_implementation():
        raise refused
    if getattr(inner.config.get_text_config(), "attention_chunk_size", None):
        raise UserError(f"{name} cannot read packed rows: it attends in chunks, which the packed learner does not know")
    proved = False
    try:
        with in_eval_mode(inner):
            inner.set_attn_implementation("eager")  # the architecture's own definition, whatever a kernel leaves out
            # An error here is the model's own, not one of packing.
            plain = _plain_probe(inner, _probe_autocast(inner))
            rounding = _rounding(inner, plain)
            register_packed_attention()
            inner.set_attn_implementation(NAME)
            try:
                gap = _gap(_packed_probe(inner), plain)
            except Exception as error:  # a model's own code reads a row that it was not written for
                raise refused from error
        proved = gap <= max(PROBE_TOLERANCE[_probe_dtype(inner)], rounding)
    finally:
        if not proved:
            inner.set_attn_implementation(before)
    if not proved:
        raise UserError(
            f"{name} cannot read packed rows: they give other values than a plain forward pass (by {gap:.3f} of their "
            "spread), so something in it mixes tokens or bends logits in a way that the packed learner does not know"
        )


def _rounding(model: PreTrainedModel, plain: Tensor) -> float:
    """Measure the gap between plain passes in half precision and in float32; zero if half precision is not used."""
    return 0.0 if _probe_autocast(model) is None else _gap(plain, _plain_probe(model, None))


def _gap(packed: Tensor, plain: Tensor) -> float:
    """Return the largest difference between the values of packed rows and plain forward passes, over its spread."""
    if not torch.isfinite(plain).all():
        return 0.0  # broken weights give no evidence about the layout; the loss will show that they are broken
    return float((packed - plain).abs().max() / plain.std().clamp(min=1e-6))


@torch.no_grad()
def _packed_probe(model: PreTrainedModel) -> Tensor:
    """Compute log-probs of the probe's completions read as one row, float64; hidden states without an output layer."""
    autocast = _probe_autocast(model)
    probe = in_vocabulary(model, PROBE)
    row = packed_row(probe, next(model.parameters()).device)
    hidden = row_states(model, row.ids, row.positions, row.layout, autocast).index_select(0, row.predicting)
    if model.get_output_embeddings() is None:
        return hidden.double()
    return fused_log_probs(hidden, output_head(model), row.targets, compute=autocast)[0].double()


@torch.no_grad()
def _plain_probe(model: PreTrainedModel, autocast: torch.dtype | None) -> Tensor:
    """Compute the same by the model's own forward pass, sequence by sequence."""
    probe = in_vocabulary(model, PROBE)
    place = next(model.parameters()).device
    headless = model.get_output_embeddings() is None
    reader: Any = model.base_model if headless else model
    plain = []
    with torch.autocast(place.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        for prompt, completion in zip(probe.prompts, probe.completions, strict=True):
            ids = torch.tensor([[*prompt, *completion]], device=place)
            output = reader(input_ids=ids, use_cache=False)
            values: Tensor = (output.last_hidden_state if headless else output.logits)[0, len(prompt) - 1 : -1]
            if not headless:
                wide = torch.promote_types(values.dtype, torch.float32)
                log_softmax = torch.log_softmax(values.to(wide), dim=-1)
                values = log_softmax.gather(1, ids[0, len(prompt) :, None]).squeeze(1)
            plain.append(values)
    return torch.cat(plain).double()


def in_vocabulary(model: nn.Module, sequences: Sequences) -> Sequences:
    """Map token ids into the vocabulary of `model`, past the special tokens if it is large; equal ids stay equal."""
    embeddings: Any = plain_inner(model).get_input_embeddings()
    rows = int(embeddings.weight.shape[0])
    parts, first = (sequences.prompts, sequences.completions), SPECIAL_TOKENS if rows > 2 * SPECIAL_TOKENS else 0
    prompts, completions = ([[(first + token) % rows for token in ids] for ids in part] for part in parts)
    return Sequences(prompts, completions)


def _probe_autocast(model: PreTrainedModel) -> torch.dtype | None:
    dtype = _probe_dtype(model)
    return dtype if next(model.parameters()).dtype != dtype else None


def _probe_dtype(model: PreTrainedModel) -> torch.dtype:
    """Return the dtype to compare in: that of the learner's fastest route on the device, which is the one to check."""
    own: torch.dtype = next(model.parameters()).dtype
    return torch.bfloat16 if own == torch.float32 and next(model.parameters()).device.type != "cpu" else own
