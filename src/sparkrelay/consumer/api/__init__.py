"""The application's side: ``Consumer`` and ``AsyncConsumer``, access keys, callbacks, records.

May use every other room; none of them may use this one.
"""
