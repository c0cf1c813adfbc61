"""The worker's own process: where it runs, what it imports, how much memory it holds."""
