"""Tests of the claims about drafters."""
