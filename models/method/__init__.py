"""The contract between the loop and its parts: read this package before you write a part."""
