"""Slot 3: which completions teach. One file a selector."""
