"""The state folder: backup, removal of what is not needed, upload, and what killed runs left."""
