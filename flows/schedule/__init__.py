"""Deployments of prefect.yaml: served, watched, and told of new data and approvals."""
