"""Tests of drafters.training.reference."""
