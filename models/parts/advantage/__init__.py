"""Slot 4: the advantage, how much better than expected a token was. One file per advantage."""
