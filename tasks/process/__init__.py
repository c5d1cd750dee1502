"""The log, signals, lock and command line of a process. Nothing here imports a task."""
