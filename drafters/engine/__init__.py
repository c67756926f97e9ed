"""The builtin engine: continuous batching with a draft, a verification and a record in every round."""
