"""The commands' bodies, grouped by what a person does with them. Each file lists its own in COMMANDS.

`rewardflow --help` imports all of these files, so a command imports what it needs when it is called.
"""
