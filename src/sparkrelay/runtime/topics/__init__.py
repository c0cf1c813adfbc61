"""The topics of an application: layout, ownership, changes and retention. May use ``contract``."""
