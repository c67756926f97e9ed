"""The builtin engine, from slots to rounds."""
