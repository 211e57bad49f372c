"""The table of MPI functions, and the generator of everything that is written once per function."""
