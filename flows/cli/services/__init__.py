"""PostgreSQL, an S3 server, MLflow and Prefect on this machine, without containers."""

PANEL = "Operations"
