"""Measure a management with a full queue and many followers: times of answers, and memory."""
