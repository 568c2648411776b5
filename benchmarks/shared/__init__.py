"""What several benchmarks use: materials, learners, quiet machines, rows of results, and openers of trainings."""
