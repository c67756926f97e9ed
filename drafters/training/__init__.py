"""Training of the reference target and of drafters on a site's own documents; nothing here is imported by the engine."""
