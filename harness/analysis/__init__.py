"""Reads a run folder and turns counts into figures."""
