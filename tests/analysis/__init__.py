"""Tests of the figures: arithmetic that a reader does in the head."""
