"""Placement of training and generation: learners, engines, Ray clusters and GPUs."""
