"""The measuring instrument: replays agent tasks against a local speculative engine and reads the records."""
