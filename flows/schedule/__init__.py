"""Service of the deployments in prefect.yaml: schedules, missed runs, new data, and approvals in MLflow."""
