"""Published results on a small real model: this project's recipes and TRL's trainers on the same weights and rows."""
