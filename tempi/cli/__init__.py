"""The ``tempi`` command; ``main`` holds the group, one module a command."""
