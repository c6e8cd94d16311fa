"""Notices to users: which events are worth one, and how they are sent."""
