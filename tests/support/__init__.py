"""Models, engines, records and scenes that tests of several files share."""
