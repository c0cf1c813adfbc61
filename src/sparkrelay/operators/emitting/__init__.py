"""What the operators have in common that keep a store and emit a stream: rows that never change."""
