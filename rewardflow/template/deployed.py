"""The flows that prefect.yaml deploys."""

from flows.evaluate_champion import evaluate_champion
from flows.refresh_data import refresh_data
from flows.train import train

__all__ = ["evaluate_champion", "refresh_data", "train"]
