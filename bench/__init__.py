"""Benchmarks of the instrument against its peers and limits, each one command."""
