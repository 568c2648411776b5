"""Training of a model on batches: batching, log-probs, reduction, optimisers, supervised fitting."""
