"""How a model learns from batches: batching, log-probs, reduction, optimisers, supervised fitting."""
