"""Tables and topics of an application as any Spark application, or none, reads them.

The changelog of a store says what it holds; its rows are made of it as the store's own would be, without an instance.
"""
