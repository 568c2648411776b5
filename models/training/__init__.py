"""The loop: rollouts, rewards, selection, advantages, fit, reference; round after round."""
