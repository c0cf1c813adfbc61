"""What every room of the consumer uses: settings, subscription, events between its two threads, requests, metrics.

Uses no other room.
"""
