"""Tests of drafters.training."""
