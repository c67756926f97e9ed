"""Drafters and their engine, on tiny random models."""
