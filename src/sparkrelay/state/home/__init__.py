"""The directories of an application on a machine: slots, locks, and removal."""
