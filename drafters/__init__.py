"""Speculative decoding itself: ways of drafting, verification, and the engine that runs them."""
