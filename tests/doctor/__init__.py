"""Tests of `harness doctor`: a server is asked everything over a real socket."""
