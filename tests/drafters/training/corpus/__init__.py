"""Tests of the corpus stage's parts."""
