"""Tests of the models that come with the package."""
