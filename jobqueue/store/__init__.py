"""The only code that speaks SQL. See README.md in this folder."""
