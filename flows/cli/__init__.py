"""The commands: `rewardflow NAME` is the function of NAME.py with that name, `rewardflow GROUP NAME` of GROUP/NAME.py.

A file's `PANEL` is its heading in `rewardflow --help` (flows/command_line.py lists the headings). That page imports all
of these files, so a command imports what it needs when it is called.
"""
