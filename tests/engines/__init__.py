"""The engine adapters."""
