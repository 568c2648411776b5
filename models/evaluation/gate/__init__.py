"""The gate: the tests that decide whether a candidate is better than the model it is compared with."""
