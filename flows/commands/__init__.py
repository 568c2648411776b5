"""The functions behind the commands, grouped by task. Each file lists its commands in COMMANDS.

`rewardflow --help` imports all of these files, so a command imports what it needs when it is called.
"""
