"""Aggregates by session windows.

Rows are put into their sessions first and aggregated by session; stored states of sessions that have merged are
combined (``AggregateCodec.combine``). The open sessions of a group stand under its key behind eight bytes of ones,
which sorts after all windows: one read finds what a row could touch. A changelog may be cut in spite of that key: of
ended sessions it means nothing, and of an open one it was written with the session's last change.

Refused: all sessions of a group with their states in one value. Final rows and expiry would need timers of their own.
"""
