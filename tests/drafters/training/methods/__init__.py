"""Tests of drafters.training.methods."""
