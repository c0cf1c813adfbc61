"""``everyNth``: every n-th row of a key. The operator that `docs/internals/new-operator.md` builds."""
