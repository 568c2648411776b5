"""Where training and generation run: learners, engines, clusters and GPUs."""
