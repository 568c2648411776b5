"""Let people compare answers of two versions, and turn their choices into data."""

PANEL = "Data"
