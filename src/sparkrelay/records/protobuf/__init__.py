"""Protobuf: messages to typed columns and back, by compiled loops; what is out of the ordinary by Google's library."""
