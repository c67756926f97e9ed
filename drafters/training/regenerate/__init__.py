"""The target's own answers to a corpus: what a conversation asks, who answers it, and what is kept of it."""
