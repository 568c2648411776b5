"""The reward that a policy implies, r = beta log pi/ref (DPO, arXiv 2305.18290), and the metrics of it.

At the optimum of E[r] - beta KL(pi || ref) it is the reward that was maximised, but for a constant of the prompt.
"""

from __future__ import annotations

from torch import Tensor

from models.method.token_batch import TokenBatch


def implied_of_pairs(log_prob: Tensor, batch: TokenBatch, beta: float) -> Tensor:
    """Compute beta log pi/ref of the better and the worse completion, [pairs, 2], nats.

    Args:
        log_prob: log pi of the better and the worse completion, [pairs, 2], nats; gradient flows.
        batch: the reference's log-probs, [tokens].
        beta: strength of the pull to the reference; 1 gives the log-ratio itself.
    """
    assert batch.reference is not None, "the recipe check makes sure that there is a reference"
    return beta * (log_prob - batch.by_pair(batch.reference))


def implied_of_completions(log_prob: Tensor, batch: TokenBatch, beta: float) -> Tensor:
    """Compute beta log pi/ref of every completion, [completions], nats.

    Args:
        log_prob: log pi of whole completions, [completions], nats; gradient flows.
        batch: the reference's log-probs, [tokens].
        beta: strength of the pull to the reference; 1 gives the log-ratio itself.
    """
    assert batch.reference is not None, "the recipe check makes sure that there is a reference"
    return beta * (log_prob - batch.sum_by_completion(batch.reference))


def implied_of_tokens(log_prob: Tensor, reference: Tensor, beta: float) -> Tensor:
    """Compute beta log pi/ref of each token, [tokens], nats.

    Their sum is the reward of the completion, and the sum over the tokens of a step that of the step. The sum over the
    first t is the soft value beta log E_ref[exp(r / beta) | y_1 .. y_t].

    Args:
        log_prob: log pi of each token, [tokens], nats; gradient flows.
        reference: likewise under the reference, [tokens], nats.
        beta: strength of the pull to the reference.
    """
    return beta * (log_prob - reference)


def watch_pairs(implied: Tensor) -> dict[str, Tensor]:
    """Return the metrics of implied rewards [pairs, 2]: one value a pair, no gradient."""
    better, worse = implied.detach().unbind(-1)
    return {
        "pair_accuracy": (better > worse).to(implied),
        "pair_margin": better - worse,
        "implied_better": better,
        "implied_worse": worse,
    }


def watch_margins(margin: Tensor, ratio: Tensor) -> dict[str, Tensor]:
    """Return the metrics of regressed margins: one value a pair, no gradient.

    Args:
        margin: what is regressed, [pairs], nats.
        ratio: log pi/ref of the better and the worse completion, [pairs, 2], nats.
    """
    margin, (better, worse) = margin.detach(), ratio.detach().unbind(-1)
    return {
        "pair_accuracy": (margin > 0).to(margin),
        "pair_margin": margin,
        "ratio_better": better,
        "ratio_worse": worse,
    }
