"""A reward of this project: shorter completions earn more."""


def reward(completions: list[str], **columns: object) -> list[float]:
    """Return 1 for an empty completion and 0 from 200 characters on, [completions]."""
    return [max(0.0, 1.0 - len(completion) / 200) for completion in completions]
