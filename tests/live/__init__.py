"""Real servers of other makers, started for the purpose: `make test-engines`. Not part of `make test`, since they need hours."""
