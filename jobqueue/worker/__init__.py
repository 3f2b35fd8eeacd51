"""A job runs. See README.md in this folder."""
