"""Measuring: every case beside a yardstick in the same run. See README.md in this folder."""
