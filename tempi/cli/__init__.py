"""The ``tempi`` command: `main` defines the group, one module each command."""
