"""Strategies, by which an evaluation makes a policy's turns from several answers, without training it."""
