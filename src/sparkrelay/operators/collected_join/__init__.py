"""Joins of a stream with a DataFrame that is collected periodically (``refresh=``)."""
