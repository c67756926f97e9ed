"""Tests of the benchmarks' arithmetic."""
