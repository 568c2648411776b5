"""The Prefect flows and the command line, which users run or schedule."""

from flows.runtime.environment import prepare_environment

prepare_environment()  # before any module of this package imports Prefect
