"""Adapters to the engines under test, one file each."""
