"""What users call on streams and tables, and the nodes that it writes down."""
