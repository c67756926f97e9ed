"""Tests of drafters.export."""
