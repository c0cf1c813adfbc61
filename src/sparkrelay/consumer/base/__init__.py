"""What all parts of the consumer share: settings, subscription, events, requests, metrics."""
