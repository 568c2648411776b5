"""Policies: building, opening, saving to a folder, and checkpoints during training."""
