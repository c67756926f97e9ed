"""Replays the steps of tasks over HTTP on one monotonic clock."""
