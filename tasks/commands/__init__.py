"""The commands of the command line, see cli.py."""
