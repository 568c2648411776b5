"""The state folder: backup, removal of unneeded files, records of killed runs; and upload to S3."""
