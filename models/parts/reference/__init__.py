"""The reference: the model that the policy is compared with, and how it is updated. One file per reference."""
