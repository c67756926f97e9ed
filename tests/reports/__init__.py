"""Tests of the reports: figures built by hand, rendered for real."""
