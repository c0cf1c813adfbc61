"""The application's side: ``Consumer`` and ``AsyncConsumer``, access keys, callbacks, records. Nothing else uses it."""
