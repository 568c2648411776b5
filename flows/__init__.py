"""What a person runs or schedules: Prefect flows and the command line."""
