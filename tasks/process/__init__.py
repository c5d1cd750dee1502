"""The process of a run: its log, signals, lock and command line. Nothing here imports a task."""
