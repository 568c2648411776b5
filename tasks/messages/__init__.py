"""Notifications: events, an outbox that outlives the process, and their delivery to any URL."""
