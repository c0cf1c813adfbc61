"""devkafka."""
