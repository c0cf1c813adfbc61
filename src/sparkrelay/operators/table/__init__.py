"""What the operators have in common that keep a table: rows by key, which change."""
