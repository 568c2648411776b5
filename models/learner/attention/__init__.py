"""Attention over packed rows, prefix trees and spans; each equals plain attention on padded rows."""
