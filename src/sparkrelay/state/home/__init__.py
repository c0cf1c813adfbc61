"""The directories of an application on a machine: its slots, their locks, and what may go."""
