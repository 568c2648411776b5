"""Deployments of prefect.yaml: they are served and watched, and start on new data; approvals are carried out."""
