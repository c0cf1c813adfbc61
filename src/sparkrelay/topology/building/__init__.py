"""From what was written to what runs: ways back from each end, their legs and subtopologies, and what is refused."""
