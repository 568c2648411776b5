"""Every recipe trained at one budget, and every recipe with an environment trained to its end."""
