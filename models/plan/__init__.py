"""What a training will need, found out before it starts."""
