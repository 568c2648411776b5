"""Mirrors: copies of MLflow's params, tags and metrics for TensorBoard, Weights & Biases and Trackio, during the run.

MLflow stays the record. A mirror is optional, and its failure never stops or slows a run.

choice          the mirrors that the user chose, and whether they are installed
mirrored        the runs that are mirrored: the only module that the rest of tasks.tracking calls
worker          the thread of a mirror, and what happens when the mirror fails
mirror          what a mirror has to provide
to_tensorboard  to_wandb  to_trackio   one mirror each; no other file imports these packages
"""
