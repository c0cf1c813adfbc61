"""What-if analysis of a live group: who would run which task, why, and how long until all copies are warm."""
