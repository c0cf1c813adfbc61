"""Tables in LMDB: how they are opened, read in order, written, and checked."""
