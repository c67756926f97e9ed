"""What each command of the command line takes and does; one file a command, imported only by :mod:`harness.cli`."""
