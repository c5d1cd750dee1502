"""The process a run is: one at a time on a storage root, its end from outside, and what it says on the way.

    console.py          sets up the log, exit codes and signals; what a person at the terminal sees
    logs.py             a record → a line of text, or a JSON object
    live.py             one live line at a terminal
    exit_code.py        an error of ours → the code Luigi ends with
    command_line.py     Luigi's overrides, in force for a block
    interrupt.py        Ctrl-C, SIGTERM and time limits
    lock.py             one run at a time on a storage root
    group.py            the processes that train together
    events.py           what tasks do, for a supervisor
    central.py          whether Luigi's central scheduler answers

Below the tasks: nothing here imports one.
"""
