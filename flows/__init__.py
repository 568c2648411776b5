"""What a person runs or schedules: Prefect flows and the command line."""

from flows.runtime.environment import prepare_environment

prepare_environment()  # before whatever is imported of this package imports Prefect
