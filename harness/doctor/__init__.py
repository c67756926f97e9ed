"""Whether a server is fit to be measured, what can be read from it, and what would have to be changed: `harness doctor`."""
