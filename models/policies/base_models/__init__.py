"""Base models from GGUF files: a catalogue of published ones, their conversion, and the store of converted ones."""
