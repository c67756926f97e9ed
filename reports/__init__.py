"""Renders the figures of a run as console table, CSV, Excel and one HTML page."""
