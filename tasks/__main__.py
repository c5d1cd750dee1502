"""``python -m tasks <command>``, see cli.py."""

from tasks.cli import main

if __name__ == "__main__":
    main()
