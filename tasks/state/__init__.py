"""The state folder: backup, removal of unneeded files, upload, and clean-up after killed runs."""
