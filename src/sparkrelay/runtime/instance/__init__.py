"""An instance of an application for its user: start, lifecycle, output, reports, stop, reset.

May import every other package of the runtime; none of them may import this one.
"""
