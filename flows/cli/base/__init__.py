"""Install published base models that `policy.base` can name."""

PANEL = "Data"
