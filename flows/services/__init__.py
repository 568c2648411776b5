"""A team's services on one machine, without containers: PostgreSQL, an S3 server, MLflow and Prefect."""
