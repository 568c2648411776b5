"""Data sets that need no path: the stages of the project's own dvc.yaml make them."""

TASK_SETS = (
    "calculator",
    "calls",
    "countdown",
    "grid_walk",
    "lookup",
    "shop",
    "twenty_questions",
    "kuhn_poker",
    "clinic",
)
"""Those for environments, made by `models.datasets.make_tasks`; each has a file in `models/datasets/task_sets`."""
BUILT_IN = ("arithmetic", *TASK_SETS)
"""All of them."""
